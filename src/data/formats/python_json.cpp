#include "src/data/formats/python_json.h"

#include <charconv>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

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

bool is_high(std::uint32_t unit) {
  return unit >= 0xD800 && unit <= 0xDBFF;
}

bool is_low(std::uint32_t unit) {
  return unit >= 0xDC00 && unit <= 0xDFFF;
}

// Rewrites a text as standard JSON by replacing Python's extensions.
class Standard {
 public:
  explicit Standard(std::string_view text) : text_(text) { out_.reserve(text.size()); }

  std::string take() {
    while (at_ < text_.size()) {
      if (text_[at_] == '"') in_string_ = !in_string_;
      if (in_string_ && text_[at_] == '\\')
        escape();
      else if (in_string_ || !number_name())
        copy(1);
    }
    return std::move(out_);
  }

 private:
  void copy(std::size_t count) {
    out_ += text_.substr(at_, count);
    at_ += count;
  }

  void escape() {
    const std::uint32_t unit = escaped_unit(text_, at_);
    if (is_high(unit) && is_low(escaped_unit(text_, at_ + 6))) {
      copy(12);
    } else if (is_high(unit) || is_low(unit)) {
      out_ += "\\uFFFD";
      at_ += 6;
    } else {
      copy(2);
    }
  }

  bool number_name() {
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (!text_.substr(at_).starts_with(name)) continue;
      out_ += "null";
      at_ += name.size();
      return true;
    }
    return false;
  }

  std::string_view text_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_string_ = false;
};

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

}  // namespace

Json parse_python_json(std::string_view text) {
  if (too_deep(text)) return Json(Json::value_t::discarded);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) json = Json::parse(Standard(text).take(), nullptr, false);
  return json;
}

}  // namespace tessera
