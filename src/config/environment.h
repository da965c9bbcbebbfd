#pragma once

#include <map>
#include <string>

#include <tessera/config/node.h>

/// Environment variables in settings: ${NAME}, or ${NAME:-default} for a variable that may be unset or empty. $${ is a literal ${. Text
/// that a shell will run is left unchanged: the value of `command` or of a key that ends in `_command`, and text that begins with `pipe:`.
namespace tessera::config {

/// Returns the tree with each variable replaced by its value. Throws UserError naming file, line, key and variable if a variable
/// is not set and has no default.
Node expand_environment(const Node& node, const std::string& path = "");

/// Returns the default of each ${NAME:-default} in the tree if the variable NAME is unset or empty. The keys are the variables' names.
std::map<std::string, std::string> defaults_used(const Node& node);

/// Returns the tree with every ${ written as $${, so that expand_environment restores the original text.
Node escape_environment(const Node& node);

}  // namespace tessera::config
