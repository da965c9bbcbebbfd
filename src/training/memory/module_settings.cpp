#include "src/training/memory/module_settings.h"

#include "src/config/values.h"

namespace tessera {

std::vector<ChunkSetting> chunk_settings(const Config& config) {
  std::vector<ChunkSetting> out;
  config::for_each_value(config.objective.settings, "objective", [&](const std::string& path, const config::Node& value) {
    if (path.ends_with(".chunk"))
      out.push_back({path, config::Value<std::optional<std::int64_t>>::read(value, path, std::nullopt)});
  });
  return out;
}

}  // namespace tessera
