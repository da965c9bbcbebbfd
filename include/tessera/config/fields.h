#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>

/// Each settings struct has one list of fields, which is used for reading, dumping, unknown-key errors and documentation:
///
///   struct SparcSettings { std::optional<double> threshold; double local_weight = 1.0; };
///   void fields(auto& v, SparcSettings& s) {
///     v("threshold", s.threshold, "min-max weights below it become 0; null means 1/P", config::in_range(0.0, 1.0));
///     v("local_weight", s.local_weight, "weight of the token-level loss (lambda_f, eq. 7)", config::at_least(0.0));
///   }
///
/// `fields` is found by argument-dependent lookup, so it must be in the struct's namespace. An optional free function
/// `std::optional<Problem> validate(const SparcSettings&)` in the same namespace rejects invalid combinations.
namespace tessera::config {

/// An invalid combination of values: the key at which to report it (may be empty), and a text that says what is wrong and how to fix it.
struct Problem {
  std::string key;
  std::string text;
};

/// A limit on a value: a text that states the limit in help and errors ("at least 0"), and a test for numbers or strings. If the value is a
/// list, each item is tested. null always passes.
struct Limit {
  std::string text;
  std::function<bool(double)> number;
  std::function<bool(const std::string&)> name;
  std::vector<std::string> names;  // the names that one_of allows, for "did you mean" suggestions
};

/// The largest number of threads that a setting may request, so that a typing error does not exhaust the machine.
inline constexpr double kMostThreads = 4096;
/// The largest number of layers, views, texts and the like that a setting may request, because each of them takes memory or time.
inline constexpr double kMostCount = 1000;

Limit at_least(double low);
Limit above(double low);
Limit in_range(double low, double high);      // includes both ends
Limit in_half_open(double low, double high);  // excludes high
Limit one_of(std::vector<std::string> names);

/// Throws UserError "file:line: path: text".
[[noreturn]] void fail(const Node& node, const std::string& path, const std::string& text);

/// The error for a key that no field has. `beside` lists the known keys of the key's group.
class UnknownKey : public UserError {
 public:
  UnknownKey(const Node& node, const std::string& path, const std::string& key, const std::vector<std::string>& beside);

  /// Returns this error with a message that suggests every path in `paths` (such as "training.steps") that ends in the unknown key or in a
  /// synonym of it. Returns an unchanged copy if there are no such paths or too many.
  UnknownKey seen_among(const std::vector<std::string>& paths) const;

 private:
  UnknownKey(std::string text, std::string where, std::string key, bool certain);

  std::string where_, key_;
  bool certain_;  // true if the error suggests a synonym, or the same key elsewhere; false if it suggests only a similar name or nothing
};

/// `name` is another program's name for a setting or value ("learning_rate"). Returns the matching names in Tessera, likeliest first.
std::vector<std::string> other_words(const std::string& name);

/// Returns the first of `names` that is a synonym of `wanted`, or an empty string if there is none.
std::string same_meaning(const std::string& wanted, const std::vector<std::string>& names);

/// Defines how a type is read from a node, dumped, and named in help. Specialize it for your own types.
template <class T, class Enable = void>
struct Value;

/// Returns "path.key", or just the key if the path is empty.
inline std::string join_path(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }

template <class T>
concept HasValidate = requires(const T& t) {
  { validate(t) } -> std::convertible_to<std::optional<Problem>>;
};

/// One row of a documentation table.
struct FieldDoc {
  std::string path;
  std::string type;
  std::string default_text;
  std::string limit;
  std::string help;
};

/// The functions of `Value<T>` for one field, with the type erased. Type erasure lets each file compile a struct's `fields` once
/// instead of once per operation.
struct FieldAccess {
  void (*read)(const Node& node, const std::string& path, void* value);  // overwrites the default that *value holds
  Node (*dump)(const void* value);
  std::string (*type)();
  bool (*visit)(class FieldVisitor& visitor, void* value);  // visits the fields of a struct; returns false if the value has no fields
};

/// The visitor that `fields` receives. `fields` calls operator() for each field, which calls `on_field`.
class FieldVisitor {
 public:
  using OnField = std::function<void(const char* key, void* value, const FieldAccess& access, const char* help, const Limit& limit)>;
  explicit FieldVisitor(OnField on_field) : on_field_(std::move(on_field)) {}

  template <class T>
  void operator()(const char* key, T& value, const char* help, const Limit& limit = {});

 private:
  OnField on_field_;
};

/// A function that calls `fields` for the struct that `value` points to.
using VisitFields = void (*)(FieldVisitor& visitor, void* value);

template <class T>
concept HasFields = requires(T& t, FieldVisitor& v) { fields(v, t); };

template <HasFields T>
void visit_fields(FieldVisitor& visitor, void* value) {
  fields(visitor, *static_cast<T*>(value));
}

/// Type-erased versions of read(), dump() and document() below.
void read_fields(const Node& node, const std::string& path, VisitFields visit, void* value);
Node dump_fields(VisitFields visit, void* value);
std::vector<FieldDoc> document_fields(const std::string& path, VisitFields visit, void* value);

/// Throws UserError if `problem` is set.
void check_problem(const Node& node, const std::string& path, const std::optional<Problem>& problem);

/// Reads a struct. Fields whose keys are not in the tree keep their values from `defaults`. Throws UserError naming file, line and key.
template <HasFields T>
T read(const Node& node, const std::string& path = "", T defaults = {}) {
  read_fields(node, path, visit_fields<T>, &defaults);
  if constexpr (HasValidate<T>) check_problem(node, path, validate(static_cast<const T&>(defaults)));
  return defaults;
}

/// Returns the struct as a tree with every value written out.
template <HasFields T>
Node dump(const T& value) {
  return dump_fields(visit_fields<T>, const_cast<T*>(&value));  // dump_fields does not change the value
}

/// Returns the documentation of a struct's fields, including nested structs.
template <HasFields T>
std::vector<FieldDoc> document(const std::string& path = "", T defaults = {}) {
  return document_fields(path, visit_fields<T>, &defaults);
}

// ---- the types -------------------------------------------------------------------------------------------------------------

template <>
struct Value<bool> {
  static bool read(const Node& node, const std::string& path, bool);
  static Node dump(bool value) { return Node::scalar(value ? "true" : "false"); }
  static std::string type() { return "bool"; }
};

template <>
struct Value<std::int64_t> {
  static std::int64_t read(const Node& node, const std::string& path, std::int64_t);
  static Node dump(std::int64_t value) { return Node::scalar(std::to_string(value)); }
  static std::string type() { return "int"; }
};

template <>
struct Value<double> {
  static double read(const Node& node, const std::string& path, double);
  static Node dump(double value);
  static std::string type() { return "float"; }
};

template <>
struct Value<std::string> {
  static std::string read(const Node& node, const std::string& path, const std::string&);
  static Node dump(const std::string& value) { return Node::scalar(value, {}, true); }
  static std::string type() { return "string"; }
};

/// A part of the tree that is kept unchanged, because it holds the settings of a module whose type is not known here.
template <>
struct Value<Node> {
  static Node read(const Node& node, const std::string&, const Node&) { return node; }
  static Node dump(const Node& value) { return value; }
  static std::string type() { return "settings"; }
};

template <class T>
struct Value<std::optional<T>> {
  static std::optional<T> read(const Node& node, const std::string& path, const std::optional<T>& defaults) {
    if (node.is_null()) return std::nullopt;
    return Value<T>::read(node, path, defaults.value_or(T{}));
  }
  static Node dump(const std::optional<T>& value) { return value ? Value<T>::dump(*value) : Node::null(); }
  static std::string type() { return std::string(Value<T>::type()).append(" or null"); }
};

template <class T>
struct Value<std::vector<T>> {
  static std::vector<T> read(const Node& node, const std::string& path, const std::vector<T>&) {
    if constexpr (std::is_same_v<T, std::string>)
      if (node.is_scalar()) return {Value<T>::read(node, path, T{})};
    if (!node.is_sequence()) fail(node, path, "expected " + type() + ", got " + node.describe());
    std::vector<T> out;
    for (std::size_t i = 0; i < node.items().size(); ++i)
      out.push_back(Value<T>::read(node.items()[i], path + "[" + std::to_string(i) + "]", T{}));
    return out;
  }
  static Node dump(const std::vector<T>& value) {
    std::vector<Node> items;
    for (const T& item : value) items.push_back(Value<T>::dump(item));
    return Node::sequence(std::move(items));
  }
  static std::string type() { return "list of " + Value<T>::type(); }
};

template <class T, std::size_t N>
struct Value<std::array<T, N>> {
  static std::array<T, N> read(const Node& node, const std::string& path, const std::array<T, N>&) {
    if (!node.is_sequence() || node.items().size() != N) fail(node, path, "expected " + type() + ", got " + node.describe());
    std::array<T, N> out{};
    for (std::size_t i = 0; i < N; ++i) out[i] = Value<T>::read(node.items()[i], path + "[" + std::to_string(i) + "]", T{});
    return out;
  }
  static Node dump(const std::array<T, N>& value) {
    std::vector<Node> items;
    for (const T& item : value) items.push_back(Value<T>::dump(item));
    return Node::sequence(std::move(items));
  }
  static std::string type() { return "list of " + std::to_string(N) + " " + Value<T>::type(); }
};

template <class T>
struct Value<std::map<std::string, T>> {
  static std::map<std::string, T> read(const Node& node, const std::string& path, const std::map<std::string, T>&) {
    if (!node.is_map() && !node.is_null()) fail(node, path, "expected " + type() + ", got " + node.describe());
    std::map<std::string, T> out;
    for (const auto& [key, value] : node.members()) out[key] = Value<T>::read(value, join_path(path, key), T{});
    return out;
  }
  static Node dump(const std::map<std::string, T>& value) {
    Node node = Node::map();
    for (const auto& [key, item] : value) node.set(key, Value<T>::dump(item));
    return node;
  }
  static std::string type() { return "name: " + Value<T>::type(); }
};

template <HasFields T>
struct Value<T> {
  static T read(const Node& node, const std::string& path, const T& defaults) { return config::read<T>(node, path, defaults); }
  static Node dump(const T& value) { return config::dump(value); }
  static std::string type() { return "group"; }
};

/// A height and a width; written as one int (a square) or as [height, width].
struct Size {
  std::int64_t height = 0;
  std::int64_t width = 0;
  Size() = default;
  Size(std::int64_t side) : height(side), width(side) {}  // NOLINT: an int is a size, as in YAML
  Size(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  bool operator==(const Size&) const = default;
};

template <>
struct Value<Size> {
  static Size read(const Node& node, const std::string& path, const Size&);
  static Node dump(const Size& value);
  static std::string type() { return "int or [height, width]"; }
};

template <class T>
inline constexpr bool kIsOptionalStruct = false;
template <HasFields T>
inline constexpr bool kIsOptionalStruct<std::optional<T>> = true;

template <class T>
inline constexpr FieldAccess kFieldAccess = {
    [](const Node& node, const std::string& path, void* value) {
      T& field = *static_cast<T*>(value);
      field = Value<T>::read(node, path, field);
    },
    [](const void* value) { return Value<T>::dump(*static_cast<const T*>(value)); },
    [] { return Value<T>::type(); },
    [](FieldVisitor& visitor, void* value) {
      if constexpr (HasFields<T>) {
        visit_fields<T>(visitor, value);
        return true;
      } else if constexpr (kIsOptionalStruct<T>) {
        auto& field = *static_cast<T*>(value);
        if (field) fields(visitor, *field);
        return field.has_value();
      } else {
        return false;
      }
    }};

template <class T>
void FieldVisitor::operator()(const char* key, T& value, const char* help, const Limit& limit) {
  on_field_(key, &value, kFieldAccess<T>, help, limit);
}

}  // namespace tessera::config
