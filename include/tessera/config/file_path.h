#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <tessera/config/fields.h>

/// Paths in settings. A relative path is looked up in the folder of the YAML file that names it (not for --set and --data), then in the
/// working folder and, if it begins with configs/, among the shipped configurations (shipped.h); if found, it becomes absolute.
namespace tessera::config {

/// Returns the absolute paths of the folders in which a relative path in `node` is looked up.
std::vector<std::string> search_folders(const Node& node);

/// Returns where a value was written, such as "a.yaml:12: data.train.path".
std::string origin_of(const Node& node, const std::string& path);

/// Returns " in A or B" for the folders that were searched; empty if there are none.
std::string searched_text(const std::vector<std::string>& folders);

/// The name of a file or folder to read.
struct FilePath {
  FilePath() = default;
  FilePath(std::string text) : name(std::move(text)) {}  // NOLINT: a name is a path
  FilePath(const char* text) : name(text) {}             // NOLINT
  operator const std::string&() const { return name; }   // NOLINT
  bool empty() const { return name.empty(); }

  std::string name;    // absolute path; if nothing was found, the name as it was written
  std::string origin;  // where the path was written (see origin_of); empty if it does not come from settings
  std::vector<std::string> searched;  // the folders that were searched, if nothing was found
};

std::ostream& operator<<(std::ostream& out, const FilePath& path);

/// If the path does not exist, throws UserError naming file, line, key and the searched folders.
void require(const FilePath& path);

/// The name of a file or folder that may not exist yet. A relative path is looked up as for FilePath, but not among the shipped
/// configurations. If no such file is found, the path is relative to the working folder.
struct OutputPath : FilePath {
  using FilePath::FilePath;
};

template <>
struct Value<FilePath> {
  static FilePath read(const Node& node, const std::string& path, const FilePath&);
  static Node dump(const FilePath& value) { return Node::scalar(value.name, {}, true); }
  static std::string type() { return "string"; }
};

template <>
struct Value<OutputPath> {
  static OutputPath read(const Node& node, const std::string& path, const OutputPath&);
  static Node dump(const OutputPath& value) { return Value<FilePath>::dump(value); }
  static std::string type() { return "string"; }
};

}  // namespace tessera::config
