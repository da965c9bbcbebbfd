#include "src/training/memory/module_settings.h"

#include <tessera/base/error.h>

namespace tessera {

void for_each_setting(const config::Node& node, const std::string& path,
                      const std::function<void(const std::string&, const config::Node&)>& visit) {
  if (!node.is_map() && !node.is_sequence()) visit(path, node);
  for (const auto& [key, value] : node.members()) for_each_setting(value, config::join_path(path, key), visit);
  for (std::size_t i = 0; i < node.items().size(); ++i) for_each_setting(node.items()[i], concat(path, ".", i), visit);
}

std::vector<ChunkSetting> chunk_settings(const Config& config) {
  std::vector<ChunkSetting> out;
  for_each_setting(config.objective.settings, "objective", [&](const std::string& path, const config::Node& value) {
    if (path.ends_with(".chunk"))
      out.push_back({path, config::Value<std::optional<std::int64_t>>::read(value, path, std::nullopt)});
  });
  return out;
}

}  // namespace tessera
