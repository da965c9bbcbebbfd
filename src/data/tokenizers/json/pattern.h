#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// A range of bytes in a text.
struct Span {
  std::size_t begin, end;
};

/// The pattern of a Split or a Replace part: a text, or a regular expression in Oniguruma's dialect. There are special scanners
/// for the split patterns of well-known tokenizers and for runs of one class of characters. ICU handles all other patterns. The function
/// appends the matches in the text from left to right. Matches do not overlap, and may be empty. Thread-safe.
using Pattern = std::function<void(std::string_view text, std::vector<Span>& out)>;

/// Reads {"String": ...} or {"Regex": ...}. Throws UserError naming `origin` if the JSON is neither of these, or if the pattern is empty or
/// not supported.
Pattern make_pattern(const nlohmann::json& json, const std::string& origin);
Pattern make_text_pattern(const std::string& text);
/// Returns a pattern whose matches are single characters that each have at least one of `classes`.
Pattern make_class_pattern(std::uint16_t classes);
/// Returns a pattern whose matches cover the text; each has `count` characters, except that the last one may be shorter.
Pattern make_length_pattern(std::size_t count);

/// Makes a pattern that uses ICU. Throws as make_pattern() does.
Pattern make_icu_pattern(const std::string& regex, const std::string& origin);

/// Returns the special scanner of a well-known split pattern, or null for other patterns.
Pattern make_known_pattern(const std::string& regex);
/// Returns the scanner of OpenCLIP's split pattern, for lower-cased texts. Its classes are those of the Python package `regex`.
Pattern make_open_clip_pattern();
/// GPT-2's split pattern. The pre-tokenizer ByteLevel uses it.
extern const std::string_view gpt2_pattern;

}  // namespace tessera::json_tokenizer
