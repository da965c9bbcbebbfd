#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>

#include "src/config/environment.h"
#include <tessera/base/text.h>
#include <tessera/config/fields.h>

namespace tessera::config {
namespace {

bool is_variable_name(const std::string& text) {
  const auto fits = [](unsigned char c) { return c < 0x80 && (std::isalnum(c) != 0 || c == '_'); };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), fits);
}

bool is_unset(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0';
}

// Returns the name and the default of "NAME:-default" if the variable is unset or empty; otherwise nullopt.
std::optional<std::pair<std::string, std::string>> default_in_use(const std::string& inside) {
  const std::size_t dash = inside.find(":-");
  if (dash == std::string::npos || !is_unset(inside.substr(0, dash))) return std::nullopt;
  return std::pair(inside.substr(0, dash), inside.substr(dash + 2));
}

// Returns the value of "NAME" or "NAME:-default".
std::string variable_value(const std::string& inside, const Node& node, const std::string& path) {
  const std::string name = inside.substr(0, inside.find(":-"));
  if (!is_variable_name(name) || inside.find("${") != std::string::npos)
    fail(node, path,
         "${" + inside + "} is not a variable: expected ${NAME} or ${NAME:-default}; write $${ for a literal ${");
  if (const auto used = default_in_use(inside)) return used->second;
  const char* value = std::getenv(name.c_str());
  if (value == nullptr)
    fail(node, path, "the environment variable " + name + " is not set: export it, or write ${" + name + ":-default}");
  if (!is_utf8(value)) fail(node, path, "the environment variable " + name + " is not UTF-8: " + value);
  return value;
}

// Replaces each ${inside} in the text by value(inside), and $${ by ${.
std::string with_variables(const std::string& text, const Node& node, const std::string& path,
                           const std::function<std::string(const std::string& inside)>& value) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 3, "$${") == 0) {
      out += "${";
      at += 3;
    } else if (text.compare(at, 2, "${") == 0) {
      const std::size_t close = text.find('}', at);
      if (close == std::string::npos) fail(node, path, "${ is not closed by }; write $${ for a literal ${");
      out += value(text.substr(at + 2, close - at - 2));
      at = close + 1;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string expanded(const std::string& text, const Node& node, const std::string& path) {
  return with_variables(text, node, path, [&](const std::string& inside) { return variable_value(inside, node, path); });
}

std::string escaped(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.compare(at, 2, "${") == 0) out += '$';
    out += text[at];
  }
  return out;
}

bool is_command(const std::string& key) {
  return key == "command" || key.ends_with("_command");
}

using Change = std::function<std::string(const std::string& text, const Node& node, const std::string& path)>;

// Applies the change to every scalar of the tree except shell commands ("pipe:...").
Node changed(const Node& node, const std::string& path, const Change& change) {
  if (node.is_scalar()) {
    if (node.text().starts_with("pipe:") || node.text().find("${") == std::string::npos) return node;
    const std::string text = change(node.text(), node, path);
    return !node.quoted() && (text == "null" || text == "~") ? Node::null(node.mark())
                                                             : Node::scalar(text, node.mark(), node.quoted());
  }
  return node.mapped(node.mark(), [&](std::size_t place, const std::string& key, const Node& child) {
    if (is_command(key) && child.is_scalar()) return child;
    return changed(child, node.is_map() ? join_path(path, key) : path + "[" + std::to_string(place) + "]", change);
  });
}

}  // namespace

Node expand_environment(const Node& node, const std::string& path) {
  return changed(node, path, expanded);
}

std::map<std::string, std::string> defaults_used(const Node& node) {
  std::map<std::string, std::string> out;
  changed(node, "", [&](const std::string& text, const Node& scalar, const std::string& path) {
    return with_variables(text, scalar, path, [&](const std::string& inside) {
      if (const auto used = default_in_use(inside)) out.insert(*used);
      return std::string();
    });
  });
  return out;
}

Node escape_environment(const Node& node) {
  return changed(node, "", [](const std::string& text, const Node&, const std::string&) { return escaped(text); });
}

}  // namespace tessera::config
