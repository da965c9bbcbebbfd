#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns a run with a frozen image encoder and the same images in every epoch. kind: an objective in YAML, which uses the
/// towers of tiny_yaml, or one that brings its own towers: `stair`, `text_group`, `dino` or `pyramidclip` (its shards are in
/// `folder`/shards).
Config frozen_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides = {});

/// Returns the same run with cached image features in `folder`/features.
Config cached_config(const std::string& kind, const std::string& folder, const std::string& run,
                     std::vector<std::string> overrides = {});

}  // namespace tessera
