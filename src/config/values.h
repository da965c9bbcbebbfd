#pragma once

#include <functional>
#include <string>

#include <tessera/config/node.h>

namespace tessera::config {

/// Calls visit(path, value) for each value below `node` that is not a group or a list; `path` is the path of `node`.
void for_each_value(const Node& node, const std::string& path, const std::function<void(const std::string&, const Node&)>& visit);

}  // namespace tessera::config
