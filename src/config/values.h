#pragma once

#include <functional>
#include <string>

#include <tessera/config/node.h>

namespace tessera::config {

/// Calls visit(path, value) for each value below `node` that is not a group or a list; `path` is the path of `node`.
void for_each_value(const Node& node, const std::string& path, const std::function<void(const std::string&, const Node&)>& visit);

/// Returns `resolved` with the file and line of each value in the user's tree `written`, so that later errors can name them.
Node marked_like(const Node& resolved, const Node& written);

}  // namespace tessera::config
