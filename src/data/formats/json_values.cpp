#include "src/data/formats/json_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;

// Returns the code unit of the "\u" escape at position `at`; 0 if there is no escape.
std::uint32_t escaped_unit(std::string_view text, std::size_t at) {
  std::uint32_t unit = 0;
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return 0;
  const char* const end = text.data() + at + 6;
  return std::from_chars(text.data() + at + 2, end, unit, 16).ptr == end ? unit : 0;
}

// Rewrites a text as standard JSON by replacing Python's extensions.
std::string as_standard_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  const auto is_high = [](std::uint32_t unit) { return unit >= 0xD800 && unit <= 0xDBFF; };
  const auto is_low = [](std::uint32_t unit) { return unit >= 0xDC00 && unit <= 0xDFFF; };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t taken = 1;  // the bytes that are replaced or copied
    std::string_view instead;
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\') {
      const std::uint32_t unit = escaped_unit(text, at);
      const bool is_pair = is_high(unit) && is_low(escaped_unit(text, at + 6)), is_half = !is_pair && (is_high(unit) || is_low(unit));
      taken = is_pair ? 12 : is_half ? 6 : 2;
      if (is_half) instead = "\\uFFFD";
    } else if (!in_string) {
      for (const std::string_view name : {"NaN", "Infinity", "-Infinity"})
        if (text.substr(at).starts_with(name)) {
          instead = "null";
          taken = name.size();
        }
    }
    out += instead.empty() ? text.substr(at, taken) : instead;
    at += taken;
  }
  return out;
}

// Whether lists and objects are nested more deeply than settings may be. The library copies and writes JSON recursively, so deep nesting
// would exhaust the stack.
bool too_deep(std::string_view text) {
  constexpr int kDeepest = 100;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size() && depth <= kDeepest; ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
  }
  return depth > kDeepest;
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
std::optional<Box> pixels_of(const Json& corners) {
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
  return Box{top, left, static_cast<std::int64_t>(std::ceil(at[3])) - top, static_cast<std::int64_t>(std::ceil(at[2])) - left};
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

using Event = Json::parse_event_t;

/// A callback for nlohmann's parser. Depth 0 is the file's object, depth 1 its members, depth 2 the items of its lists.
class ItemParser {
 public:
  ItemParser(const std::string& path, const std::map<std::string, JsonItemReader>& readers) : path_(path), readers_(readers) {}

  // The parser discards values for which this returns false.
  bool operator()(int depth, Event event, Json& parsed) {
    if (depth == 0 && event == Event::array_start) user_error(path_, ": expected an object { }, got a list");
    if (depth == 1 && event == Event::key) begin_member(parsed.get_ref<const std::string&>());
    if (depth == 1 && event == Event::value && reader_ != nullptr)
      user_error(path_, ": ", printable(name_), ": expected a list, got ", parsed.type_name());
    if (depth == 1 && (event == Event::object_start || event == Event::array_start)) {
      if (reader_ != nullptr && event == Event::object_start) user_error(path_, ": ", printable(name_), ": expected a list, got an object");
      return reader_ != nullptr;
    }
    if (depth != 2 || reader_ == nullptr) return true;
    if (event == Event::value || event == Event::array_end)
      user_error(path_, ": ", printable(name_), "[", number_, "]: expected an object, got ", parsed.type_name());
    if (event != Event::object_end) return true;
    (*reader_)(JsonItem(parsed, concat(path_, ": ", name_, "[", number_, "]")));
    ++number_;
    return false;
  }

  void check_complete() const {
    for (const auto& [name, reader] : readers_)
      if (!contains(seen_, name))
        user_error(path_, ": has no list \"", name, "\"; its members are: ", seen_.empty() ? "none" : printable(join_names(seen_), 500));
  }

 private:
  void begin_member(const std::string& name) {
    name_ = name;
    number_ = 0;
    if (seen_.size() < 20 || readers_.contains(name)) seen_.push_back(name);
    const auto found = readers_.find(name);
    reader_ = found == readers_.end() ? nullptr : &found->second;
  }

  const std::string& path_;
  const std::map<std::string, JsonItemReader>& readers_;
  std::vector<std::string> seen_;
  std::string name_;
  std::int64_t number_ = 0;
  const JsonItemReader* reader_ = nullptr;
};

}  // namespace

Json parse_python_json(std::string_view text) {
  if (too_deep(text)) return Json(Json::value_t::discarded);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) json = Json::parse(as_standard_json(text), nullptr, false);
  return json;
}

void read_objects(const Json& list, std::vector<ObjectAnnotation>& out) {
  read_items(list, out, [](const Json& json, ObjectAnnotation& object) {
    return has_box(json) && read_member(json, "negatives", object.negatives) && read_member(json, "label", object.label) &&
           read_member(json, "box", object.box) && read_member(json, "phrase", object.phrase) && read_member(json, "span", object.span) &&
           read_member(json, "caption", object.caption);
  });
}

void read_negatives(const Json& list, std::vector<HardNegative>& out) {
  read_items(list, out, [](const Json& json, HardNegative& negative) {
    return read_value(json, negative.caption) ||
           (json.is_object() && json.contains("caption") && read_member(json, "kind", negative.kind) &&
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

const Json& JsonItem::member(const char* name, const char* expected, bool (Json::*is_right)() const noexcept) const {
  const auto found = json_.find(name);
  if (found == json_.end()) user_error(place_, ": has no ", name, "; expected ", expected);
  if (!((*found).*is_right)()) user_error(place_, ".", name, ": expected ", expected, ", got ", found->type_name());
  return *found;
}

void for_each_item(const std::string& path, const std::map<std::string, JsonItemReader>& readers) {
  const std::string text = io::read_data_file(path);
  ItemParser parser(path, readers);
  try {
    const Json rest = Json::parse(text, std::ref(parser));
    if (!rest.is_object()) user_error(path, ": expected an object { }, got ", rest.type_name());
  } catch (const Json::parse_error& error) {
    const auto line = 1 + std::ranges::count(std::string_view(text).substr(0, error.byte), '\n');
    user_error(path, ":", line, ": is not JSON (byte ", error.byte, " of ", text.size(), ")",
               error.byte > text.size() ? ": the file is cut off" : "");
  } catch (const Json::out_of_range&) {
    user_error(path, ": holds a number that is too large for any type");
  }
  parser.check_complete();
}

}  // namespace tessera
