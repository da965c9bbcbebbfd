#pragma once

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

/// A tree of settings with the place each value came from: what YAML files, JSON settings and --set overrides are read into
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
  /// {name: NAME}, what a plain name stands for where a module is chosen.
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

  /// The member's value, or nullptr. Only for maps (nullptr otherwise).
  const Node* find(std::string_view key) const;
  /// Adds the member or replaces its value; turns a null node into a map.
  void set(std::string_view key, Node value);
  void erase(std::string_view key);

  /// Lays `over` on top: maps merge key by key, anything else replaces. A map whose `name` differs replaces the whole map:
  /// the settings of one module mean nothing to another. A plain name beside a map counts as {name: NAME}.
  void merge(const Node& over);

  /// "a 12-character string", "a list", ... for error messages.
  std::string describe() const;

 private:
  Kind kind_ = Kind::null;
  bool quoted_ = false;
  std::string text_;
  std::vector<Node> items_;
  std::vector<Member> members_;
  Mark mark_;
};

/// Parses YAML text. `file` is what error messages name. Throws UserError on malformed YAML or duplicate keys.
Node parse_yaml(const std::string& text, const std::string& file);

/// Reads the YAML file that `name` means (find_configuration in shipped.h), lays it over the files its `extends:` names (one or
/// a list; beside the file, or as `name`) and applies the overrides ("a.b=c") in their order; then environment variables get
/// their values (environment.h). Throws UserError on a missing file, malformed YAML or a cycle.
Node load_yaml(const std::string& name, const std::vector<std::string>& overrides = {});

/// Applies one --set override "a.b=c"; the value is YAML. List items are addressed by index ("stages.0.steps=5").
void apply_override(Node& root, const std::string& assignment);

/// YAML text of the tree, block style, short lists inline.
std::string to_yaml(const Node& node);

Node from_json(const nlohmann::json& json, const std::string& file);
nlohmann::json to_json(const Node& node);

}  // namespace tessera::config
