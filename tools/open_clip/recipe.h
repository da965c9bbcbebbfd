#pragma once

#include <string>

namespace tessera::tools::open_clip {

/// The YAML of the run whose parameters open_clip_train has written into `file`, params.txt of its log folder. Comments at its head
/// say what has no counterpart here, and what differs. Throws UserError naming the file and the parameter: none of open_clip_train's
/// lines, a value of the wrong kind, a model that is not known or that ours cannot express.
std::string recipe_of(const std::string& file);

}  // namespace tessera::tools::open_clip
