#include "src/data/formats/annotations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/python_json.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;

void add_caption_of(const Json& value, std::vector<std::string>& captions) {
  if (value.is_string()) add_caption(value.get_ref<const std::string&>(), captions);
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Side files usually repeat the caption from the sample's caption member. Such a caption is kept only once.
void merge_captions(std::vector<std::string> listed, std::vector<std::string>& captions) {
  std::vector<std::string> others;
  for (const std::string& caption : captions)
    if (!contains(listed, caption)) others.push_back(caption);
  others.insert(others.end(), std::make_move_iterator(listed.begin()), std::make_move_iterator(listed.end()));
  captions = std::move(others);
}

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

template <class T>
bool read_member(const Json& object, const char* name, T& value) {
  const auto found = object.find(name);
  return found == object.end() || read_value(*found, value);
}

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> out;
  if (!list.is_array()) return out;
  for (const Json& each : list)
    if (each.is_string()) out.push_back(each.get<std::string>());
  return out;
}

// Returns the texts of an object's list of negatives; empty if it has none.
std::vector<std::string> negatives_of(const Json& object) {
  const auto list = object.find("negatives");
  return list == object.end() ? std::vector<std::string>() : texts_of(*list);
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
  return std::array{top, left, static_cast<std::int64_t>(std::ceil(at[3])) - top,
                    static_cast<std::int64_t>(std::ceil(at[2])) - left};
}

bool has_box(const Json& item) {
  return item.is_object() && item.contains("box");
}

bool read_object(const Json& json, ObjectAnnotation& out) {
  if (!has_box(json)) return false;
  out.negatives = negatives_of(json);
  return read_member(json, "label", out.label) &&
         read_member(json, "box", out.box) && read_member(json, "phrase", out.phrase) &&
         read_member(json, "span", out.span) && read_member(json, "caption", out.caption);
}

bool read_negative(const Json& json, HardNegative& out) {
  if (read_value(json, out.caption)) return true;
  return json.is_object() && json.contains("caption") && read_member(json, "kind", out.kind) &&
         read_member(json, "caption", out.caption);
}

template <class T, class Read>
void read_items(const Json& list, std::vector<T>& out, Read read) {
  if (!list.is_array()) return;
  for (const Json& each : list) {
    T item;
    if (read(each, item)) out.push_back(std::move(item));
  }
}

}  // namespace

bool read_annotations(std::string_view text, const std::vector<std::string>& caption_fields, Sample& sample) {
  const Json json = parse_python_json(text);
  if (json.is_discarded()) return false;
  read_annotations(json, caption_fields, sample);
  return true;
}

void read_annotations(const Json& json, const std::vector<std::string>& caption_fields, Sample& sample) {
  if (!json.is_object()) return;
  sample.fields = dump_utf8(json);
  std::vector<std::string> listed;
  for (const std::string& name : caption_fields) {
    const auto value = json.find(name);
    if (value == json.end()) continue;
    std::vector<std::string> of_field;
    if (value->is_array())
      for (const Json& each : *value) add_caption_of(each, of_field);
    else
      add_caption_of(*value, of_field);
    merge_captions(std::move(of_field), listed);
  }
  merge_captions(std::move(listed), sample.captions);
  if (const auto list = json.find("objects"); list != json.end()) read_items(*list, sample.objects, read_object);
  if (const auto list = json.find("negatives"); list != json.end()) read_negatives(*list, sample.negatives);
  if (const auto list = json.find("regions"); list != json.end()) sample.bad_boxes = read_regions(*list, sample.objects);
}

void read_negatives(const Json& list, std::vector<HardNegative>& out) {
  read_items(list, out, read_negative);
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
    object.negatives = negatives_of(list[i]);
    out.push_back(std::move(object));
  }
  return problem;
}

bool holds_regions(const Json& list) {
  return list.is_array() && std::ranges::any_of(list, has_box);
}

std::vector<std::string> json_names(std::string_view text, std::size_t most) {
  std::vector<std::string> names;
  const Json json = parse_python_json(text);
  if (!json.is_object()) return names;
  for (const auto& [name, value] : json.items())
    if (names.size() < most) names.push_back(printable(name));
  return names;
}

std::string json_text(const Json& json, const std::string& field) {
  const auto plain = [](const Json& value) {
    if (value.is_string()) return std::string(strip(value.get_ref<const std::string&>()));
    return value.is_number() ? value.dump() : std::string();
  };
  const auto value = json.find(field);  // end() if json is not an object
  if (value == json.end()) return {};
  if (!value->is_array()) return plain(*value);
  std::string joined;
  for (const Json& each : *value)
    if (const std::string text = plain(each); !text.empty()) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

}  // namespace tessera
