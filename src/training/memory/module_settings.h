#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Calls visit(path, value) for each single value of a module's settings.
void for_each_setting(const config::Node& node, const std::string& path,
                      const std::function<void(const std::string&, const config::Node&)>& visit);

/// A `chunk` of an objective's settings.
struct ChunkSetting {
  std::string path;                   // objective.chunk
  std::optional<std::int64_t> chunk;  // none: the loss processes the whole batch at once
};

/// Returns the `chunk` settings of the objective, or of all objectives in a sum.
std::vector<ChunkSetting> chunk_settings(const Config& config);

}  // namespace tessera
