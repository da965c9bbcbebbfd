#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::config {

/// Where a value was written: "configs/a.yaml:12", or "--set" for an override.
struct Mark {
  std::string file;
  int line = 0;
  std::string text() const { return line > 0 ? file + ":" + std::to_string(line) : file; }
};

/// The settings of a module, read from a node (registry.h).
struct ReadSettings {
  std::any value;    // the module's struct of settings
  std::string path;  // the path of the settings in messages
};

/// A tree of settings that records where each value came from. YAML files, JSON settings and --set overrides are read into it
/// before they become structs. Scalars keep their text; the struct's field decides the type.
class Node {
 public:
  enum class Kind { null, scalar, sequence, map };
  using Member = std::pair<std::string, Node>;

  Node() = default;
  static Node null(Mark mark = {});
  static Node scalar(std::string text, Mark mark = {}, bool quoted = false);
  static Node sequence(std::vector<Node> items, Mark mark = {});
  static Node map(std::vector<Member> members = {}, Mark mark = {});
  /// Returns the map {name: NAME}. As the value of a setting that chooses a module, this map means the same as the plain name NAME.
  static Node named(const Node& name);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  bool is_scalar() const { return kind_ == Kind::scalar; }
  bool is_sequence() const { return kind_ == Kind::sequence; }
  bool is_map() const { return kind_ == Kind::map; }
  /// A scalar written in quotes is a string even if it looks like a number.
  bool quoted() const { return quoted_; }

  const std::string& text() const { return text_; }
  const std::vector<Node>& items() const { return items_; }
  const std::vector<Member>& members() const { return members_; }
  const Mark& mark() const { return mark_; }

  /// Returns the member's value, or nullptr if there is none or the node is not a map.
  const Node* find(std::string_view key) const;
  /// Adds the member or replaces its value; turns a null node into a map.
  void set(std::string_view key, Node value);
  void erase(std::string_view key);

  /// Returns the node with another mark, in which change(place, key, child) replaces each member, and each item, whose key is empty.
  Node mapped(Mark mark, const std::function<Node(std::size_t place, const std::string& key, const Node& child)>& change) const;

  /// Merges `over` into this node. Two maps are merged key by key, and the keys of `over` come last in the result. If the two maps have
  /// different values of `name`, `over` replaces this node instead, because the settings of one module mean nothing to another; this does
  /// not apply to the group `run`, or if `name_chooses` (a module) is false. Values that are not maps are replaced too. A plain name NAME
  /// that is merged with a map counts as {name: NAME}.
  void merge(const Node& over, bool name_chooses = true);

  /// What a registry read from this node; null if nothing was read, or if the node was changed since.
  const std::shared_ptr<const ReadSettings>& read_settings() const { return read_; }
  void keep(std::shared_ptr<const ReadSettings> read) { read_ = std::move(read); }

  /// Describes the node for error messages: "a list of 3", "a group of settings", ...
  std::string describe() const;

 private:
  Kind kind_ = Kind::null;
  bool quoted_ = false;
  std::string text_;
  std::vector<Node> items_;
  std::vector<Member> members_;
  Mark mark_;
  std::shared_ptr<const ReadSettings> read_;
};

/// Parses YAML text. Error messages name `file`. Throws UserError on malformed YAML, duplicate keys or a second document.
Node parse_yaml(const std::string& text, const std::string& file);

/// Reads the YAML file that `name` refers to (find_configuration in shipped.h), merges it over the files listed under its key `extends`,
/// applies the overrides ("a.b=c") in order, and expands environment variables (environment.h). `extends` holds one name or a list; each
/// name is looked up first in the file's own folder, then like `name`. Throws UserError on a missing file, malformed YAML, a file without
/// settings (an extended file may be empty) or a cycle.
Node load_yaml(const std::string& name, const std::vector<std::string>& overrides = {});

/// Applies one --set override "a.b=c"; the value is YAML. List items are addressed by index ("stages.0.steps=5").
void apply_override(Node& root, const std::string& assignment);

/// Returns the tree as YAML text in block style, with lists of scalars inline.
std::string to_yaml(const Node& node);

Node from_json(const nlohmann::json& json, const std::string& file);
nlohmann::json to_json(const Node& node);

}  // namespace tessera::config
