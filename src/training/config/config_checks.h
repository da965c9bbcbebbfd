#pragma once

#include <string>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the node at a dotted path. If it does not exist, returns the deepest existing node on that path. Errors about the key report
/// this node's position.
const config::Node& nearest_node(const config::Node& tree, const std::string& path);

/// Throws UserError if the image encoder and the preprocessing have different values of image_size.
void check_image_size(const Config& config, const config::Node& tree);

/// Throws UserError if the resolved parts do not fit together; `tree` records where each key was written.
void check_combination(const Config& config, const config::Node& tree);

}  // namespace tessera
