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
  std::optional<std::int64_t> chunk;  // none: the loss takes the whole batch at a time
};

/// Those of the objective, or of a sum's objectives.
std::vector<ChunkSetting> chunk_settings(const Config& config);

}  // namespace tessera
