#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// A setting `chunk` of an objective.
struct ChunkSetting {
  std::string path;                   // its path, such as objective.chunk
  std::optional<std::int64_t> chunk;  // nullopt: the loss processes the whole batch at once
};

/// Returns the `chunk` settings of the objective, including those of the objectives in a weighted sum.
std::vector<ChunkSetting> chunk_settings(const Config& config);

}  // namespace tessera
