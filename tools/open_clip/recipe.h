#pragma once

#include <string>

namespace tessera::tools::open_clip {

/// Returns the YAML of an open_clip_train run, whose parameters are in `file`, params.txt of its log folder. Comments at its head
/// list what has no counterpart here and what differs. Throws UserError naming the file and the parameter: a line that is not
/// open_clip_train's, a value of the wrong type, or a model that is unknown or not supported.
std::string recipe_of(const std::string& file);

}  // namespace tessera::tools::open_clip
