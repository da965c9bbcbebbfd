#include "src/data/formats/annotations.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include <nlohmann/json.hpp>

#include "src/data/formats/captions.h"
#include "src/data/formats/python_json.h"
#include <tessera/base/printable.h>
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

// A side file usually repeats the caption that a member of its own holds.
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

// Fractions are cut off. The library's own conversion is undefined for numbers that 64 bits do not hold.
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

bool read_object(const Json& json, ObjectAnnotation& out) {
  return json.is_object() && json.contains("box") && read_member(json, "label", out.label) &&
         read_member(json, "box", out.box) && read_member(json, "phrase", out.phrase) &&
         read_member(json, "span", out.span) && read_member(json, "caption", out.caption);
}

bool read_negative(const Json& json, HardNegative& out) {
  return json.is_object() && json.contains("caption") && read_member(json, "kind", out.kind) &&
         read_member(json, "caption", out.caption);
}

template <class T, class Read>
void read_list(const Json& json, const char* name, std::vector<T>& out, Read read) {
  const auto list = json.find(name);
  if (list == json.end() || !list->is_array()) return;
  for (const Json& each : *list) {
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
  sample.fields = json.dump(-1, ' ', false, Json::error_handler_t::replace);
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
  read_list(json, "objects", sample.objects, read_object);
  read_list(json, "negatives", sample.negatives, read_negative);
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
  const auto value = json.find(field);  // the end for anything but an object
  if (value == json.end()) return {};
  if (!value->is_array()) return plain(*value);
  std::string joined;
  for (const Json& each : *value)
    if (const std::string text = plain(each); !text.empty()) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

}  // namespace tessera
