#pragma once

#include <map>
#include <string>

#include <tessera/config/node.h>

/// Environment variables in settings: ${NAME}, or ${NAME:-default} for one that may be unset or empty. $${ stands for ${ itself.
/// What a shell reads is left to it: the values of `command` and of keys that end in `_command`, and texts that begin with pipe:.
namespace tessera::config {

/// The tree with the variables' values. Throws UserError naming file, line, key and variable where one is not set.
Node expand_environment(const Node& node, const std::string& path = "");

/// Of ${NAME:-default} in the tree, the defaults of variables that are unset or empty, by name.
std::map<std::string, std::string> defaults_used(const Node& node);

/// The tree with $${ for ${, which expand_environment gives back as it was.
Node escape_environment(const Node& node);

}  // namespace tessera::config
