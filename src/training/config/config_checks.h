#pragma once

#include <string>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the node at a dotted path, or the deepest existing node on that path: the place that an error about the key names.
const config::Node& nearest_node(const config::Node& tree, const std::string& path);

/// Throws UserError if the image encoder's and the preprocessing's image_size differ.
void check_image_size(const Config& config, const config::Node& tree);

/// Throws UserError if the resolved parts do not fit together; `tree` records where each key was written.
void check_combination(const Config& config, const config::Node& tree);

}  // namespace tessera
