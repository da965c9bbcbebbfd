#include <tessera/config/node.h>

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/config/noncharacter.h"
#include "src/config/values.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::config {

Node Node::null(Mark mark) {
  Node node;
  node.mark_ = std::move(mark);
  return node;
}

Node Node::scalar(std::string text, Mark mark, bool quoted) {
  Node node = null(std::move(mark));
  node.kind_ = Kind::scalar;
  node.text_ = std::move(text);
  node.quoted_ = quoted;
  return node;
}

Node Node::named(const Node& name) {
  return map({{"name", name}}, name.mark());
}

Node Node::sequence(std::vector<Node> items, Mark mark) {
  Node node = null(std::move(mark));
  node.kind_ = Kind::sequence;
  node.items_ = std::move(items);
  return node;
}

Node Node::map(std::vector<Member> members, Mark mark) {
  Node node = null(std::move(mark));
  node.kind_ = Kind::map;
  node.members_ = std::move(members);
  return node;
}

const Node* Node::find(std::string_view key) const {
  for (const Member& member : members_)
    if (member.first == key) return &member.second;
  return nullptr;
}

void Node::set(std::string_view key, Node value) {
  if (kind_ != Kind::map) *this = map({}, mark_);
  read_.reset();
  for (Member& member : members_)
    if (member.first == key) {
      member.second = std::move(value);
      return;
    }
  members_.emplace_back(std::string(key), std::move(value));
}

void Node::erase(std::string_view key) {
  read_.reset();
  std::erase_if(members_, [&](const Member& member) { return member.first == key; });
}

Node Node::mapped(Mark mark, const std::function<Node(std::size_t, const std::string&, const Node&)>& change) const {
  Node out = null(std::move(mark));
  out.kind_ = kind_;
  out.quoted_ = quoted_;
  out.text_ = text_;
  for (const Node& item : items_) out.items_.push_back(change(out.items_.size(), "", item));
  for (const auto& [key, member] : members_) out.members_.emplace_back(key, change(out.members_.size(), key, member));
  return out;
}

void Node::merge(const Node& over, bool name_chooses) {
  if (is_map() && find("name") != nullptr && over.is_scalar()) return merge(named(over), name_chooses);
  if (is_scalar() && over.is_map()) *this = named(*this);
  const Node* name = find("name");
  const Node* other = over.find("name");
  const bool another_module = name_chooses && name != nullptr && other != nullptr && name->text() != other->text();
  if (!is_map() || !over.is_map() || another_module) {
    *this = over;
    return;
  }
  for (const Member& member : over.members_) {
    const Node* mine = find(member.first);
    Node merged = mine != nullptr ? *mine : Node();
    merged.merge(member.second, member.first != "run");
    erase(member.first);
    set(member.first, std::move(merged));
  }
}

std::string Node::describe() const {
  switch (kind_) {
    case Kind::null: return "nothing";
    case Kind::scalar: return "\"" + printable(text_, 60) + "\"";
    case Kind::sequence: return "a list of " + std::to_string(items_.size());
    case Kind::map: return "a group of settings";
  }
  return {};
}

namespace {

bool is_index(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns whether the name of the group at the first `depth` names of the path chooses a module. Runs and stages have plain names.
bool name_chooses(const std::vector<std::string>& path, std::size_t depth) {
  return depth == 0 || (path[depth - 1] != "run" && !(depth == 2 && path[0] == "stages"));
}

// Returns the node with `value` merged at the path. Nodes are values, so each level on the path is copied and rebuilt.
Node assigned(Node node, const std::vector<std::string>& path, std::size_t depth, const Node& value, const std::string& assignment) {
  if (depth == path.size()) {
    node.merge(value, name_chooses(path, depth));
    return node;
  }
  const std::string& key = path[depth];
  if (node.is_sequence()) {
    std::size_t index = 0;
    const bool overflows = std::from_chars(key.data(), key.data() + key.size(), index).ec != std::errc();
    if (!is_index(key) || overflows || index >= node.items().size())
      user_error("--set ", printable(assignment), ": ", printable(key), " is not a valid index into a list of ", node.items().size());
    std::vector<Node> items = node.items();
    items[index] = assigned(items[index], path, depth + 1, value, assignment);
    return Node::sequence(std::move(items), node.mark());
  }
  if (node.is_scalar()) node = Node::named(node);
  const Node* child = node.find(key);
  // If the name of a module changes, the old module's settings are removed. Node::merge() does the same for files that extend a file.
  const bool renames = depth + 1 == path.size() && key == "name" && name_chooses(path, depth) && child != nullptr &&
                       child->text() != value.text();
  if (renames) return Node::map({{"name", value}}, value.mark());
  node.set(key, assigned(child != nullptr ? *child : Node(), path, depth + 1, value, assignment));
  return node;
}

}  // namespace

void apply_override(Node& root, const std::string& assignment) {
  constexpr std::size_t deepest = 100;  // maximum number of names in a key; the key a.b.c has 3
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    user_error("--set ", printable(assignment), ": expected KEY=VALUE, for example --set optimizer.lr=5e-4");
  if (holds_noncharacter(assignment))
    user_error("--set ", printable(assignment), ": holds a Unicode noncharacter (U+FFFE, U+FFFF, ...)");
  std::vector<std::string> path;
  std::string part;
  for (char c : assignment.substr(0, equals) + ".") {
    if (c != '.') {
      part += c;
      continue;
    }
    if (part.empty()) user_error("--set ", printable(assignment), ": empty name in the key");
    if (printable(part) != part)
      user_error("--set ", printable(assignment), ": a name in the key is not UTF-8 or has control characters");
    if (path.size() == deepest)
      user_error("--set ", printable(assignment), ": more than ", deepest, " names in the key");
    path.push_back(std::exchange(part, {}));
  }
  const std::string text = assignment.substr(equals + 1);
  Node value = parse_yaml(text, "--set " + printable(assignment.substr(0, equals)));
  // YAML parses some text as null, for example a lone comma (separator=,).
  const std::string_view bare = strip(text);
  if (value.is_null() && !bare.empty() && bare != "~" && bare != "null" && bare != "Null" && bare != "NULL" && bare[0] != '#')
    value = Node::scalar(std::string(bare), {}, true);
  value = marked_like(value, Node::null({"--set", 0}));  // one mark for all, because a command line has no line numbers
  root = assigned(root, path, 0, value, assignment);
}

namespace {

Node from_json_at(const nlohmann::json& json, const std::string& file, int depth) {
  constexpr int deepest = 100;
  const Mark mark{file, 0};
  if (depth > deepest) user_error(file, ": JSON with more than ", deepest, " nested lists and objects");
  if (json.is_null()) return Node::null(mark);
  if (json.is_string()) return Node::scalar(json.get<std::string>(), mark, true);
  if (json.is_array()) {
    std::vector<Node> items;
    for (const auto& item : json) items.push_back(from_json_at(item, file, depth + 1));
    return Node::sequence(std::move(items), mark);
  }
  if (json.is_object()) {
    std::vector<Node::Member> members;
    for (const auto& [key, value] : json.items()) members.emplace_back(key, from_json_at(value, file, depth + 1));
    return Node::map(std::move(members), mark);
  }
  return Node::scalar(json.dump(), mark);
}

}  // namespace

Node from_json(const nlohmann::json& json, const std::string& file) {
  return from_json_at(json, file, 0);
}

nlohmann::json to_json(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::null: return nullptr;
    case Node::Kind::scalar: {
      if (node.quoted()) return node.text();
      const auto parsed = nlohmann::json::parse(node.text(), nullptr, false);
      return parsed.is_number() || parsed.is_boolean() ? parsed : nlohmann::json(node.text());
    }
    case Node::Kind::sequence: {
      auto out = nlohmann::json::array();
      for (const Node& item : node.items()) out.push_back(to_json(item));
      return out;
    }
    case Node::Kind::map: {
      auto out = nlohmann::json::object();
      for (const auto& [key, value] : node.members()) out[key] = to_json(value);
      return out;
    }
  }
  return nullptr;
}

}  // namespace tessera::config
