#pragma once

#include <string>

#include <tessera/training/config/config.h>

namespace tessera {

/// The node at a dotted path, or the deepest one on the way there: what an error about that key points at.
const config::Node& nearest_node(const config::Node& tree, const std::string& path);

/// Throws UserError when the image encoder and the preprocessing are both given an image_size and they differ.
void check_image_size(const Config& config, const config::Node& tree);

/// Throws UserError when the resolved parts do not fit each other; `tree` tells where each key was written.
void check_combination(const Config& config, const config::Node& tree);

}  // namespace tessera
