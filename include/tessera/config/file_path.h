#pragma once

#include <string>
#include <utility>

#include <tessera/config/fields.h>

namespace tessera::config {

/// The name of a file to read. A relative one is looked up beside the YAML file that names it, then in the working
/// folder.
struct FilePath {
  FilePath() = default;
  FilePath(std::string text) : name(std::move(text)) {}  // NOLINT: a name is a path
  FilePath(const char* text) : name(text) {}             // NOLINT
  operator const std::string&() const { return name; }   // NOLINT

  std::string name;
};

template <>
struct Value<FilePath> {
  static FilePath read(const Node& node, const std::string& path, const FilePath&);
  static Node dump(const FilePath& value) { return Node::scalar(value.name, {}, true); }
  static std::string type() { return "string"; }
};

}  // namespace tessera::config
