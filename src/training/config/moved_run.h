#pragma once

#include <string>

#include <tessera/config/node.h>

namespace tessera {

/// If `path` is the config.yaml that a run wrote into its folder, and the folder was moved or copied since, lets the tree name the folder
/// in which the file lies now: in `run.folder`, and in all paths below the earlier folder. Overrides stay as they are. Returns a line that
/// says so; empty if nothing was moved. Throws UserError if a copy would overwrite the checkpoints that the original run stores elsewhere.
std::string follow_moved_run(config::Node& tree, const std::string& path);

}  // namespace tessera
