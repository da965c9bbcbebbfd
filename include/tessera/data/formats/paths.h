#pragma once

#include <string>
#include <vector>

#include <tessera/config/file_path.h>

namespace tessera {

/// File names as users write them in YAML: one text or a list. Each text may hold several names ("a.tar::b.tar" or
/// "a.tar,b.tar"), braces ("{00000..00004}", "{train,val}") and wildcards ("*", "?").
struct PathList {
  std::vector<std::string> items;     // absolute, or as they were written where nothing of the name was found
  std::string origin;                 // where they were written, as of config::FilePath
  std::vector<std::string> searched;  // the folders in which relative ones are looked for
};

/// One text with all its braces expanded, in order, as Python's braceexpand: "a{1..3}" -> a1 a2 a3 (leading zeros
/// kept), "{0..4..2}" -> 0 2 4, "{c..a}" -> c b a, "{x,y}z" -> xz yz. Braces around neither a list nor a range ("{5}"),
/// and such as are not closed, stay. Throws UserError on a range that is malformed, and on more than 1,000,000 names.
std::vector<std::string> expand_braces(const std::string& text);

/// The path in a name written as file:///PATH or file:/PATH; other names as they are.
std::string local_path(const std::string& name);

/// Local files, in the order written, wildcards and folders sorted; a folder stands for the files in it whose names end
/// with `extension`. Throws UserError naming what is missing, remote addresses, and a list that comes out empty.
/// commands: whether the caller reads "pipe:COMMAND" itself, so that messages may advise it.
std::vector<std::string> expand_paths(const PathList& paths, const std::string& extension, bool commands = false);

namespace config {
template <>
struct Value<PathList> {
  /// Each name is looked for as config::FilePath, all that its braces and wildcards stand for in one folder.
  static PathList read(const Node& node, const std::string& path, const PathList&);
  static Node dump(const PathList& value) {
    return value.items.size() == 1 ? Value<std::string>::dump(value.items[0])
                                   : Value<std::vector<std::string>>::dump(value.items);
  }
  static std::string type() { return "string or list of string"; }
};
}  // namespace config

}  // namespace tessera
