#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// In data.loader.views, an entry `name` with a `count` creates several views. Returns their names, such as global_0, global_1, ...
inline std::vector<std::string> counted_views(const std::string& name, std::int64_t count) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(name + "_" + std::to_string(i));
  return out;
}

}  // namespace tessera
