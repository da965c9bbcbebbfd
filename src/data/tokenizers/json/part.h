#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// Formats a text from a file for error messages: in quotes, as ASCII, and shortened to a readable length.
std::string shown(const std::string& text);

using Keys = std::vector<std::string_view>;

/// A part of a tokenizer.json: an object with a `type`, or the file's `model`. All functions throw UserErrors that name the file and the
/// part.
class Part {
 public:
  /// `what` is the name of the part: "normalizer", "pre_tokenizer", ... Throws if the object has no type. A `model` need not have one.
  Part(const nlohmann::json& json, const char* what, const std::string& origin);

  const std::string& type() const { return type_; }
  /// Throws if the part has a member that is neither `type` nor in `keys`.
  void allow(const Keys& keys) const;
  const nlohmann::json& at(const char* key) const;
  /// Returns a member that is a string. A member that is missing or null is `otherwise` or, without `otherwise`, an error.
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }
  /// Returns a member that is a string of exactly one character.
  std::string character(const char* key) const;
  bool flag(const char* key, bool otherwise) const;
  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const std::string& origin() const { return origin_; }
  /// Throws an error that says that the part's type is not supported.
  [[noreturn]] void unknown() const;
  /// Throws an error that says what is wrong with the part.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  std::string name_of(std::string_view key) const;

  const nlohmann::json& json_;
  std::string what_;
  const std::string& origin_;
  std::string type_;
};

/// A type of part: the members that it may have, and the function that adds what it does to `out`.
template <class Out>
struct PartType {
  std::string_view name;
  Keys members;
  void (*add)(const Part& part, Out& out);
};

/// The `add` of a type that has no settings.
template <auto step, class Out>
void add_step(const Part& /*part*/, Out& out) {
  out.emplace_back(step);
}

/// Reads a part into `out`. If the part is a `Sequence`, its member `list` holds the parts to read. Throws UserError naming `origin` and
/// the part's type if it is not among `types`, or has members that its type does not have.
template <class Out>
void read_part(const nlohmann::json& json, const char* what, const char* list, const std::vector<PartType<Out>>& types,
               const std::string& origin, Out& out, int depth = 0) {
  constexpr int deepest = 16;
  const Part part(json, what, origin);
  if (part.type() == "Sequence") {
    part.allow({list});
    if (depth == deepest) part.refuse("is nested too deeply");
    for (const nlohmann::json& each : part.at(list)) read_part(each, what, list, types, origin, out, depth + 1);
    return;
  }
  const auto type = std::ranges::find(types, part.type(), &PartType<Out>::name);
  if (type == types.end()) part.unknown();
  part.allow(type->members);
  type->add(part, out);
}

}  // namespace tessera::json_tokenizer
