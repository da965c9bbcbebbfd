#pragma once

#include <string>

namespace tessera::tools::open_clip {

/// Converts a run of open_clip_train to Tessera's YAML. `file` is params.txt in the run's log folder. Comments at the top of the YAML list
/// what has no counterpart here and what differs. Throws UserError, which names the file and the parameter, for a line that open_clip_train
/// does not write, a value of the wrong type, or a model that is unknown or not supported.
std::string recipe_of(const std::string& file);

}  // namespace tessera::tools::open_clip
