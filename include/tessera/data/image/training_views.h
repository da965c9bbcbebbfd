#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <tessera/batch.h>
#include <tessera/data/image/image_settings.h>
#include <tessera/data/sample.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Height and width of each view of pixels that `needs` names, as the loader makes it. Throws UserError: a view that is
/// not configured.
std::map<std::string, config::Size> image_view_sizes(const Preprocessing& preprocessing, const ImageSettings& settings,
                                                     const Needs& needs);

/// A function that makes the training picture of a sample (decoding, random crop, augmentation) and drops it: what the
/// loader spends on a picture, for benchmarks. It throws SampleError naming the key.
std::function<void(const Sample& sample, std::int64_t index)> training_picture_work(const Preprocessing& preprocessing,
                                                                                   const ImageSettings& settings);

}  // namespace tessera
