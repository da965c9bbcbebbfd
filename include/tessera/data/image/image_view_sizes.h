#pragma once

#include <map>
#include <string>

#include <tessera/batch.h>
#include <tessera/data/image/image_settings.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Height and width of each view of pixels that `needs` names, as the loader makes it. Throws UserError: a view that is
/// not configured.
std::map<std::string, config::Size> image_view_sizes(const Preprocessing& preprocessing, const ImageSettings& settings,
                                                     const Needs& needs);

}  // namespace tessera
