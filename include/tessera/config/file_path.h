#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <tessera/config/fields.h>

/// Paths in settings. One that is relative is looked for beside the YAML file that names it, then in the working folder;
/// where it is found, it becomes absolute. On command lines (--set, --data) only the working folder counts.
namespace tessera::config {

/// The folders in which a relative path that `node` holds is looked for, absolute.
std::vector<std::string> search_folders(const Node& node);

/// "a.yaml:12: data.train.path", where a value was written.
std::string origin_of(const Node& node, const std::string& path);

/// " in A or B", the places searched for a path; empty without any.
std::string searched_text(const std::vector<std::string>& folders);

/// The name of a file or folder to read.
struct FilePath {
  FilePath() = default;
  FilePath(std::string text) : name(std::move(text)) {}  // NOLINT: a name is a path
  FilePath(const char* text) : name(text) {}             // NOLINT
  operator const std::string&() const { return name; }   // NOLINT
  bool empty() const { return name.empty(); }

  std::string name;                   // absolute, or as it was written where nothing of this name was found
  std::string origin;                 // see origin_of; empty for one that stands in no settings
  std::vector<std::string> searched;  // the folders it was not found in
};

std::ostream& operator<<(std::ostream& out, const FilePath& path);

/// Throws UserError naming file, line, key and the folders searched, if nothing of this name is there.
void require(const FilePath& path);

/// The name of a file or folder that may be yet to be made. One that is not found is made in the working folder.
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
