#pragma once

#include <string>
#include <vector>

#include <tessera/config/file_path.h>

namespace tessera {

/// File names as users write them in YAML: one string or a list of strings. Each string may hold several names ("a.tar::b.tar" or
/// "a.tar,b.tar"), braces ("{00000..00004}", "{train,val}") and wildcards ("*", "?").
struct PathList {
  std::vector<std::string> items;     // absolute paths; a name that was not found is kept as written
  std::string origin;                 // where the user wrote the names (config::origin_of)
  std::vector<std::string> searched;  // the folders in which relative names are looked up
};

/// Expands all braces of a text, in order, as Python's braceexpand does: "a{1..3}" -> a1 a2 a3 (leading zeros are kept),
/// "{0..4..2}" -> 0 2 4, "{c..a}" -> c b a, "{x,y}z" -> xz yz. Unclosed braces, and braces around neither a list nor a
/// range ("{5}"), stay as they are. Throws UserError on a malformed range and on more than 1,000,000 names.
std::vector<std::string> expand_braces(const std::string& text);

/// Returns /PATH for a name written as file:///PATH or file:/PATH; returns other names unchanged.
std::string local_path(const std::string& name);

/// Where the files of a source may be: on the local disk; also in stores (remote::is_remote); or also the output of commands
/// ("pipe:COMMAND"), which the caller of expand_paths() must have handled.
enum class FilePlaces { local, stores, commands };

/// Returns the files that `paths` names, in the order written. A folder is replaced by the files in it that end in `extension`. The
/// files of a folder and the matches of a wildcard are sorted. Throws UserError on missing files, on files in other places and on an empty
/// result.
std::vector<std::string> expand_paths(const PathList& paths, const std::string& extension, FilePlaces places = FilePlaces::local);

/// Names several files in a message: "a.tar and 7 more shards".
std::string first_and_more(const std::vector<std::string>& paths, const char* what);

namespace config {
template <>
struct Value<PathList> {
  /// Looks for each name in the same folders as config::FilePath does. If a name has braces or wildcards, all files that it stands for must
  /// be in the same folder.
  static PathList read(const Node& node, const std::string& path, const PathList&);
  static Node dump(const PathList& value) {
    return value.items.size() == 1 ? Value<std::string>::dump(value.items[0])
                                   : Value<std::vector<std::string>>::dump(value.items);
  }
  static std::string type() { return "string or list of string"; }
};
}  // namespace config

}  // namespace tessera
