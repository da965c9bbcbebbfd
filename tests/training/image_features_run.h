#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// A run whose image encoder is frozen, and whose pictures are the same in every epoch: an objective in YAML on
/// tiny_yaml's towers, or one of those with towers of their own: `stair`, `text_group`, `dino`, `pyramidclip` (whose
/// shards lie in `folder`/shards).
Config frozen_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides = {});

/// The same run with features of its pictures in `folder`/features.
Config cached_config(const std::string& kind, const std::string& folder, const std::string& run,
                     std::vector<std::string> overrides = {});

}  // namespace tessera
