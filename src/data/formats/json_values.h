#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/sample.h>

namespace tessera {

/// Parses JSON as Python's json module writes it, which may be nonstandard: NaN and Infinity become null, and lone halves of
/// surrogate pairs become U+FFFD. Returns a discarded value (is_discarded()) if the text is not JSON or nested more than 100 levels deep.
nlohmann::json parse_python_json(std::string_view text);

/// Adds the annotated objects of a list, as sample_files() writes them, to `out`. Each item has a box [top, left, height, width]. Invalid
/// items are ignored; so is a value that is not a list. The same holds for the functions below.
void read_objects(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);

/// Adds the hard negatives of a list to `out`. Each item is a text or an object {kind, caption}.
void read_negatives(const nlohmann::json& list, std::vector<HardNegative>& out);

/// Adds the annotated objects of a list to `out`. Each item is {box: [left, top, right, bottom] in pixels, phrase, negatives: [text, ...]}.
/// Fractional boxes are extended to whole pixels. Returns an error message about the first invalid box, for Sample::bad_boxes, or an empty
/// text if all boxes are valid.
std::string read_regions(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);
/// Returns whether `list` is a list with an item that has a box.
bool holds_regions(const nlohmann::json& list);

/// Returns the names of a JSON object's members, at most `most` of them, in alphabetical order. Empty for other values.
std::vector<std::string> json_names(const nlohmann::json& json, std::size_t most);

/// Returns a value as text. A text or number stays as written; a list of texts and numbers is joined by ", ". Empty for other values.
std::string json_text(const nlohmann::json& value);

/// One item of a list in a JSON file, with its place in the file for messages.
class JsonItem {
 public:
  JsonItem(const nlohmann::json& json, std::string place) : json_(json), place_(std::move(place)) {}

  /// These functions return a member of the item. They throw UserError "FILE: images[3]: ..." if it is missing or has another type.
  std::string text(const char* name) const { return member(name, "a text", &nlohmann::json::is_string); }
  std::int64_t number(const char* name) const { return member(name, "a whole number", &nlohmann::json::is_number_integer); }
  bool flag(const char* name) const { return member(name, "true or false", &nlohmann::json::is_boolean); }
  const nlohmann::json& list(const char* name) const { return member(name, "a list", &nlohmann::json::is_array); }
  /// Returns the member's text, or an empty text if the member is missing or null.
  std::string text_or_empty(const char* name) const { return json_.value(name, nlohmann::json()).is_null() ? std::string() : text(name); }
  const std::string& place() const { return place_; }

 private:
  const nlohmann::json& member(const char* name, const char* expected, bool (nlohmann::json::*is_right)() const noexcept) const;
  const nlohmann::json& json_;
  std::string place_;
};

using JsonItemReader = std::function<void(const JsonItem&)>;

/// Parses a file {"NAME": [{...}, ...], ...} in one pass and hands the items of the named lists to their readers, in the
/// file's order, without keeping them. Throws UserError if the file is missing, is not JSON (naming the line) or lacks a list.
void for_each_item(const std::string& path, const std::map<std::string, JsonItemReader>& readers);

}  // namespace tessera
