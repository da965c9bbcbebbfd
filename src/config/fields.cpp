#include <tessera/base/text.h>
#include <tessera/config/fields.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/base/printable.h"
#include "src/config/values.h"
#include <tessera/config/registry.h>

namespace tessera::config {
namespace {

std::string number_text(double value) {
  std::array<char, 64> out{};
  const auto result = std::to_chars(out.data(), out.data() + out.size(), value);
  return {out.data(), result.ptr};
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

const std::string& scalar_text(const Node& node, const std::string& path, const std::string& expected) {
  if (!node.is_scalar()) fail(node, path, "expected " + expected + ", got " + node.describe());
  return node.text();
}

}  // namespace

Limit at_least(double low) {
  return {"at least " + number_text(low), [=](double x) { return x >= low; }, {}, {}};
}

Limit above(double low) {
  return {"above " + number_text(low), [=](double x) { return x > low; }, {}, {}};
}

Limit in_range(double low, double high) {
  return {"from " + number_text(low) + " to " + number_text(high), [=](double x) { return x >= low && x <= high; }, {}, {}};
}

Limit in_half_open(double low, double high) {
  return {"at least " + number_text(low) + " and below " + number_text(high), [=](double x) { return x >= low && x < high; }, {}, {}};
}

Limit one_of(std::vector<std::string> names) {
  std::string text = "one of " + join_names(names);
  auto allowed = [names](const std::string& name) {
    for (const std::string& each : names)
      if (each == name) return true;
    return false;
  };
  return {std::move(text), {}, std::move(allowed), std::move(names)};
}

void fail(const Node& node, const std::string& path, const std::string& text) {
  const std::string mark = node.mark().text();
  constexpr std::size_t longest = 2000;  // long enough for, say, the names of all modules
  user_error(mark, mark.empty() || path.empty() ? "" : ": ", printable(path), ": ", printable(text, longest));
}

void for_each_value(const Node& node, const std::string& path, const std::function<void(const std::string&, const Node&)>& visit) {
  if (!node.is_map() && !node.is_sequence()) visit(path, node);
  for (const auto& [key, value] : node.members()) for_each_value(value, join_path(path, key), visit);
  for (std::size_t i = 0; i < node.items().size(); ++i) for_each_value(node.items()[i], concat(path, ".", i), visit);
}

void check_keys(const Node& node, const std::string& path, const std::vector<std::string>& known) {
  for (const auto& [key, value] : node.members())
    if (!contains(known, key)) throw UnknownKey(value, path, key, known);
}

namespace {

void check_limit(const Node& node, const std::string& path, const Limit& limit) {
  if (limit.text.empty() || node.is_null()) return;
  if (node.is_sequence()) {
    for (const Node& item : node.items()) check_limit(item, path, limit);
    return;
  }
  if (!node.is_scalar()) return;
  if (limit.number) {
    const std::optional<double> value = parse_number(node.text());
    if (!value || !limit.number(*value)) fail(node, path, "expected " + limit.text + ", got " + node.text());
  }
  if (limit.name && !limit.name(node.text())) {
    std::string near = same_meaning(node.text(), limit.names);
    if (near.empty()) near = nearest_name(node.text(), limit.names);
    fail(node, path, "expected " + limit.text + ", got " + node.describe() + (near.empty() ? "" : ": did you mean " + near + "?"));
  }
}

// Returns a visitor that adds a row for each field of a struct at `path`, and for the fields of structs in it.
FieldVisitor doc_writer(const std::string& path, std::vector<FieldDoc>& rows) {
  return FieldVisitor([path, &rows](const char* key, void* value, const FieldAccess& access, const char* help, const Limit& limit) {
    const std::string own = join_path(path, key);
    FieldVisitor nested = doc_writer(own, rows);
    if (access.visit(nested, value)) return;
    const std::string text = to_yaml(access.dump(value));
    rows.push_back({own, access.type(), std::string(strip(text)), limit.text, help});
  });
}

}  // namespace

void read_fields(const Node& node, const std::string& path, VisitFields visit, void* value) {
  if (!node.is_map() && !node.is_null()) fail(node, path, "expected a group of settings, got " + node.describe());
  std::vector<std::string> keys;
  FieldVisitor lister([&](const char* key, const auto&...) { keys.emplace_back(key); });
  visit(lister, value);
  check_keys(node, path, keys);  // comes first, so that a misspelled key is reported before, say, a missing file
  FieldVisitor reader([&](const char* key, void* field, const FieldAccess& access, const char*, const Limit& limit) {
    const Node* child = node.find(key);
    if (child == nullptr) return;
    const std::string at = join_path(path, key);
    access.read(*child, at, field);
    check_limit(*child, at, limit);
  });
  visit(reader, value);
}

Node dump_fields(VisitFields visit, void* value) {
  Node node = Node::map();
  FieldVisitor dumper([&](const char* key, const void* field, const FieldAccess& access, const auto&...) {
    node.set(key, access.dump(field));
  });
  visit(dumper, value);
  return node;
}

std::vector<FieldDoc> document_fields(const std::string& path, VisitFields visit, void* value) {
  std::vector<FieldDoc> rows;
  FieldVisitor writer = doc_writer(path, rows);
  visit(writer, value);
  return rows;
}

void check_problem(const Node& node, const std::string& path, const std::optional<Problem>& problem) {
  if (!problem) return;
  const Node* at = problem->key.empty() ? &node : node.find(problem->key);
  fail(at != nullptr ? *at : node, problem->key.empty() ? path : join_path(path, problem->key), problem->text);
}

bool Value<bool>::read(const Node& node, const std::string& path, bool) {
  const std::string& text = scalar_text(node, path, "true or false");
  if (!node.quoted() && (text == "true" || text == "True" || text == "yes" || text == "on")) return true;
  if (!node.quoted() && (text == "false" || text == "False" || text == "no" || text == "off")) return false;
  fail(node, path, "expected true or false, got " + node.describe());
}

std::int64_t Value<std::int64_t>::read(const Node& node, const std::string& path, std::int64_t) {
  const std::string& text = scalar_text(node, path, "a whole number");
  const std::optional<double> number = node.quoted() ? std::nullopt : parse_number(text);
  if (!number || *number != std::floor(*number) || std::abs(*number) > 9e15)
    fail(node, path, "expected a whole number, got " + node.describe());
  std::int64_t exact = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), exact);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() ? exact : static_cast<std::int64_t>(*number);
}

double Value<double>::read(const Node& node, const std::string& path, double) {
  const std::string& text = scalar_text(node, path, "a number");
  const std::optional<double> number = node.quoted() ? std::nullopt : parse_number(text);
  if (!number || !std::isfinite(*number)) fail(node, path, "expected a number, got " + node.describe());
  return *number;
}

Node Value<double>::dump(double value) {
  std::string text = number_text(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return Node::scalar(text);
}

std::string Value<std::string>::read(const Node& node, const std::string& path, const std::string&) {
  return scalar_text(node, path, "text");
}

Size Value<Size>::read(const Node& node, const std::string& path, const Size&) {
  if (node.is_scalar()) return {Value<std::int64_t>::read(node, path, 0)};
  if (!node.is_sequence() || node.items().size() != 2) fail(node, path, "expected " + type() + ", got " + node.describe());
  return {Value<std::int64_t>::read(node.items()[0], path, 0), Value<std::int64_t>::read(node.items()[1], path, 0)};
}

Node Value<Size>::dump(const Size& value) {
  const Node height = Value<std::int64_t>::dump(value.height);
  if (value.height == value.width) return height;
  return Node::sequence({height, Value<std::int64_t>::dump(value.width)});
}

ModuleSettings Value<ModuleSettings>::read(const Node& node, const std::string& path, const ModuleSettings& defaults) {
  if (node.is_scalar()) return {node.text(), Node::map({}, node.mark())};
  const Node* name = node.find("name");
  if (name == nullptr && node.is_map() && !defaults.name.empty()) return {defaults.name, node};
  if (name == nullptr || !name->is_scalar()) fail(node, path, "expected {name: NAME, settings...}, got " + node.describe());
  Node settings = node;
  settings.erase("name");
  return {name->text(), std::move(settings)};
}

Node Value<ModuleSettings>::dump(const ModuleSettings& value) {
  Node node = Node::map({{"name", Node::scalar(value.name, {}, true)}});
  for (const auto& [key, item] : value.settings.members()) node.set(key, item);
  return node;
}

std::vector<std::string> RegistryBase::names() const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_) out.push_back(entry.name);
  return out;
}

bool RegistryBase::contains(const std::string& name) const {
  for (const Entry& entry : entries_)
    if (entry.name == name) return true;
  return false;
}

std::size_t RegistryBase::index_of(const ModuleSettings& choice, const std::string& path) const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == choice.name) return i;
  fail(choice.settings, path, "unknown " + kind_ + " " + choice.name + suggestion(choice.name, names()));
}

Node marked_like(const Node& resolved, const Node& written) {
  return resolved.mapped(written.mark(), [&](std::size_t place, const std::string& key, const Node& child) {
    const Node* there = resolved.is_map() ? written.find(key) : nullptr;
    if (resolved.is_sequence() && place < written.items().size()) there = &written.items()[place];
    return marked_like(child, there != nullptr ? *there : written);
  });
}

void compare_trees(const Node& first, const Node& second, const std::string& path, const SameValue& same, const VisitDifference& visit) {
  const auto compare = [&](const Node* a, const Node* b, const std::string& own) {
    const bool lists = a != nullptr && b != nullptr && a->is_sequence() && b->is_sequence() && a->items().size() == b->items().size();
    if ((lists && std::ranges::any_of(a->items(), &Node::is_map)) || (a != nullptr && b != nullptr && a->is_map() && b->is_map()))
      compare_trees(*a, *b, own, same, visit);
    else if (!same(a, b))
      visit(own, a, b);
  };
  for (std::size_t i = 0; i < first.items().size(); ++i) compare(&first.items()[i], &second.items()[i], concat(path, ".", i));
  const Node *name = first.find("name"), *other = second.find("name");
  if (!path.empty() && name != nullptr && other != nullptr && !same(name, other)) return visit(join_path(path, "name"), name, other);
  for (const auto& [key, value] : first.members()) compare(&value, second.find(key), join_path(path, key));
  for (const auto& [key, value] : second.members())
    if (first.find(key) == nullptr) compare(nullptr, &value, join_path(path, key));
}

ModuleSettings RegistryBase::resolve(const ModuleSettings& choice, const std::string& path) const {
  const Entry& entry = entries_[index_of(choice, path)];
  Node settings = marked_like(entry.dump(entry.read(choice.settings, path)->value), choice.settings);
  settings.keep(entry.read(settings, path));  // this struct knows the places of defaults, too, which messages name (FilePath::origin)
  return {choice.name, std::move(settings)};
}

}  // namespace tessera::config
