#pragma once

#include <functional>
#include <string>

#include <tessera/config/node.h>

namespace tessera::config {

/// Calls visit(path, value) for each value below `node` that is not a group or a list; `path` is the path of `node`.
void for_each_value(const Node& node, const std::string& path, const std::function<void(const std::string&, const Node&)>& visit);

/// Returns `resolved` with the file and line of each value in the user's tree `written`, so that later errors can name them.
Node marked_like(const Node& resolved, const Node& written);

using SameValue = std::function<bool(const Node*, const Node*)>;
using VisitDifference = std::function<void(const std::string& path, const Node* first, const Node* second)>;
/// Compares two trees and calls visit(path, first, second) for each setting that differs; nullptr stands for a setting that is missing. If
/// two modules have different names, only `path.name` differs. same(first, second) compares values and lists.
void compare_trees(const Node& first, const Node& second, const std::string& path, const SameValue& same, const VisitDifference& visit);

}  // namespace tessera::config
