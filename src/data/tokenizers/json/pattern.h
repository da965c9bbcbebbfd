#pragma once

#include <cstddef>
#include <memory>
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
/// for the split patterns of well-known tokenizers and for runs of one class of characters. ICU handles all other patterns.
/// Thread-safe.
class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends the matches in the text from left to right. Matches do not overlap, and may be empty.
  virtual void find(std::string_view text, std::vector<Span>& out) const = 0;
};

/// Reads {"String": ...} or {"Regex": ...}. Throws UserError naming `origin` if the JSON is neither of these, or if the pattern is empty or
/// not supported.
std::shared_ptr<const Pattern> make_pattern(const nlohmann::json& json, const std::string& origin);
std::shared_ptr<const Pattern> make_text_pattern(const std::string& text);
std::shared_ptr<const Pattern> make_regex_pattern(const std::string& regex, const std::string& origin);

/// Makes a pattern that uses ICU. Throws as make_pattern() does.
std::shared_ptr<const Pattern> make_icu_pattern(const std::string& regex, const std::string& origin);

/// Returns the special scanner of a well-known split pattern, or null for other patterns.
std::shared_ptr<const Pattern> make_known_pattern(const std::string& regex);
/// Returns the scanner of OpenCLIP's split pattern, for lower-cased texts. Its classes are those of the Python package `regex`.
std::shared_ptr<const Pattern> make_open_clip_pattern();
/// GPT-2's split pattern. The pre-tokenizer ByteLevel uses it.
extern const std::string_view gpt2_pattern;

/// Returns a scanner for runs of one class of characters, such as `\s+` or ` {2,}`; null for any other expression.
std::shared_ptr<const Pattern> make_row_pattern(const std::string& regex);

}  // namespace tessera::json_tokenizer
