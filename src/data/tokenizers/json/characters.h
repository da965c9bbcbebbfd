#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/data/tokenizers/unicode.h"

/// Reads UTF-8 character by character, and classifies characters as the reference tokenizers do. All texts must be valid UTF-8.
namespace tessera::json_tokenizer {

/// If nothing else is said, a class is that of the `tokenizers` package. scripts/generate/tokenizer_json_tables.py has the same order.
enum Class : std::uint16_t {
  letter = 1,             // \p{L} in regular expressions
  number = 2,             // \p{N}
  white_space = 4,        // \s in regular expressions, which is the same as Rust's char::is_whitespace
  numeric = 8,            // Rust's char::is_numeric
  word = 16,              // \w in the regular expression of the pre-tokenizer `Whitespace`
  punctuation = 32,       // a character that the pre-tokenizers `Punctuation` and `BertPreTokenizer` treat as punctuation
  combining = 64,         // a character that the normalizer `StripAccents` removes
  joins = 128,            // joins the grapheme of the character before it
  control = 256,          // a character that BERT's cleaning removes
  mark = 512,             // a character that BERT's accent stripping removes
  newer_letter = 1024,    // only the Python package `regex`, which OpenCLIP uses, counts it as a letter
  newer_number = 2048,    // only `regex` counts it as a number
  cased = 4096,           // decides whether Python lower-cases a capital sigma before or after it to a final sigma
  ignorable = 8192,       // skipped in the search for a cased character
  decimal = 16384,        // Python's str.isdecimal
  newer_capital = 32768,  // lower_of() changes it, but Python's str.lower does not
};

/// The classes of the ASCII characters. class_of_wide() returns those of all other characters.
extern const std::array<std::uint16_t, 128> ascii_classes;
std::uint16_t class_of_wide(char32_t code);

/// Returns the classes of a character, as bits.
inline std::uint16_t class_of(char32_t code) {
  return code < 0x80 ? ascii_classes[code] : class_of_wide(code);
}

/// Returns the lower case of a character. The caller must handle U+0130, whose lower case has two characters.
char32_t lower_of(char32_t code);
/// Lower-cases the ASCII letters of a text.
void lower_ascii(std::string& text);

constexpr char32_t capital_dotted_i = 0x130;

using unicode::length_of;
using unicode::next_code;

inline char32_t code_at(std::string_view text, std::size_t at) {
  return next_code(text, at);
}

/// Returns the classes of the character at position `at`, and advances `at` past this character.
inline std::uint16_t next_class(std::string_view text, std::size_t& at) {
  return class_of(next_code(text, at));
}

/// Returns the position where the character before `at` starts.
inline std::size_t before(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

/// Returns the end of the run that starts at `at`: the longest sequence of characters that each have at least one of `classes`.
inline std::size_t end_of_row(std::string_view text, std::size_t at, std::uint16_t classes) {
  while (at < text.size()) {
    std::size_t next = at;
    if ((next_class(text, next) & classes) == 0) break;
    at = next;
  }
  return at;
}

/// Returns the character that byte-level tokenizers write for a byte.
char32_t character_of_byte(std::uint8_t byte);
/// Returns the byte that a character of byte-level tokenizers represents; -1 for other characters.
int byte_of_character(char32_t code);
/// Returns the bytes that a token of a byte-level tokenizer represents; nullopt if the token has other characters.
std::optional<std::string> bytes_of_characters(std::string_view token);
/// Appends, for each byte, the character that byte-level tokenizers write for it.
void append_byte_characters(std::string_view bytes, std::string& out);

}  // namespace tessera::json_tokenizer
