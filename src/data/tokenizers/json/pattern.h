#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// Bytes of a text.
struct Span {
  std::size_t begin, end;
};

/// What a Split or a Replace looks for: a text, or a regular expression of Oniguruma's dialect. The split patterns of the
/// well-known tokenizers and rows of one class of characters have scanners of their own; ICU finds the rest. Thread-safe.
class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends the matches in the text from left to right; they do not overlap, and may be empty.
  virtual void find(std::string_view text, std::vector<Span>& out) const = 0;
};

/// Reads {"String": ...} or {"Regex": ...}. Throws UserError naming `origin` for what is neither, is empty or not understood.
std::shared_ptr<const Pattern> make_pattern(const nlohmann::json& json, const std::string& origin);
std::shared_ptr<const Pattern> make_text_pattern(const std::string& text);
std::shared_ptr<const Pattern> make_regex_pattern(const std::string& regex, const std::string& origin);

/// A regular expression for ICU; see make_regex_pattern().
std::shared_ptr<const Pattern> make_icu_pattern(const std::string& regex, const std::string& origin);

/// The scanner of a well-known split pattern, or null.
std::shared_ptr<const Pattern> make_known_pattern(const std::string& regex);
/// GPT-2's, which the part ByteLevel has built in.
extern const std::string_view gpt2_pattern;

/// A row of characters of one class, `\s+` or ` {2,}`, or null if the expression is anything else.
std::shared_ptr<const Pattern> make_row_pattern(const std::string& regex);

}  // namespace tessera::json_tokenizer
