#include "src/data/formats/annotations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;

bool read_value(const Json& json, std::string& value) {
  if (json.is_string()) value = json.get<std::string>();
  return json.is_string();
}

// Reads a number and truncates its fraction. Checks the range, because the library's conversion is undefined for numbers that
// do not fit in 64 bits.
bool read_value(const Json& json, std::int64_t& value) {
  constexpr double limit = 9223372036854775808.0;  // 2^63
  if (!json.is_number()) return false;
  const auto number = json.get<double>();
  if (!(number >= -limit && number < limit)) return false;
  value = json.get<std::int64_t>();
  return true;
}

template <std::size_t N>
bool read_value(const Json& json, std::array<std::int64_t, N>& values) {
  if (!json.is_array() || json.size() != N) return false;
  for (std::size_t i = 0; i < N; ++i)
    if (!read_value(json[i], values[i])) return false;
  return true;
}

bool read_value(const Json& json, std::vector<std::string>& texts) {
  if (!json.is_array()) return true;
  for (const Json& each : json)
    if (each.is_string()) texts.push_back(each.get<std::string>());
  return true;
}

template <class T>
bool read_member(const Json& object, const char* name, T& value) {
  const auto found = object.find(name);
  return found == object.end() || read_value(*found, value);
}

// Returns the top, left, height and width of the pixels that a box [left, top, right, bottom] touches, or nullopt if `corners` is not a
// box.
std::optional<std::array<std::int64_t, 4>> pixels_of(const Json& corners) {
  constexpr double kFarthest = 1e9;
  if (!corners.is_array() || corners.size() != 4) return std::nullopt;
  std::array<double, 4> at{};
  for (std::size_t i = 0; i < 4; ++i) {
    if (!corners[i].is_number()) return std::nullopt;
    at[i] = corners[i].get<double>();
    if (!(std::abs(at[i]) <= kFarthest)) return std::nullopt;
  }
  if (!(at[0] < at[2] && at[1] < at[3])) return std::nullopt;
  const auto left = static_cast<std::int64_t>(std::floor(at[0])), top = static_cast<std::int64_t>(std::floor(at[1]));
  return std::array{top, left, static_cast<std::int64_t>(std::ceil(at[3])) - top, static_cast<std::int64_t>(std::ceil(at[2])) - left};
}

bool has_box(const Json& item) {
  return item.is_object() && item.contains("box");
}

template <class T, class Read>
void read_items(const Json& list, std::vector<T>& out, const Read& read) {
  if (!list.is_array()) return;
  for (const Json& each : list)
    if (T item; read(each, item)) out.push_back(std::move(item));
}

}  // namespace

void read_objects(const Json& list, std::vector<ObjectAnnotation>& out) {
  read_items(list, out, [](const Json& json, ObjectAnnotation& object) {
    return has_box(json) && read_member(json, "negatives", object.negatives) && read_member(json, "label", object.label) &&
           read_member(json, "box", object.box) && read_member(json, "phrase", object.phrase) && read_member(json, "span", object.span) &&
           read_member(json, "caption", object.caption);
  });
}

void read_negatives(const Json& list, std::vector<HardNegative>& out) {
  read_items(list, out, [](const Json& json, HardNegative& negative) {
    return read_value(json, negative.caption) || (json.is_object() && json.contains("caption") && read_member(json, "kind", negative.kind) &&
                                                  read_member(json, "caption", negative.caption));
  });
}

std::string read_regions(const Json& list, std::vector<ObjectAnnotation>& out) {
  if (!holds_regions(list)) return {};
  std::string problem;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!has_box(list[i])) continue;
    const Json& corners = list[i].at("box");
    const auto box = pixels_of(corners);
    if (!box && problem.empty())
      problem = concat("regions[", i, "].box is ", printable(dump_utf8(corners), 80),
                       "; expected [left, top, right, bottom] in pixels, with left < right and top < bottom");
    ObjectAnnotation object;
    if (!box || !read_member(list[i], "phrase", object.phrase)) continue;
    object.box = *box;
    read_member(list[i], "negatives", object.negatives);
    out.push_back(std::move(object));
  }
  return problem;
}

bool holds_regions(const Json& list) {
  return list.is_array() && std::ranges::any_of(list, has_box);
}

std::vector<std::string> json_names(const Json& json, std::size_t most) {
  std::vector<std::string> names;
  if (json.is_object())
    for (auto member = json.begin(); member != json.end() && names.size() < most; ++member) names.push_back(member.key());
  return names;
}

std::string json_text(const Json& value) {
  const auto plain = [](const Json& each) {
    return each.is_string() ? std::string(strip(each.get_ref<const std::string&>())) : each.is_number() ? each.dump() : std::string();
  };
  if (!value.is_array()) return plain(value);
  std::string joined;
  for (const Json& each : value)
    if (const std::string text = plain(each); !text.empty()) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

}  // namespace tessera
