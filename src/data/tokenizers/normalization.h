#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/data/tokenizers/unicode.h"

/// Unicode normalization (UAX #15) by ICU, restricted to the characters of a fixed Unicode version. Unicode's stability policy promises
/// that the normal forms of these characters never change, so results do not depend on ICU's version.
namespace tessera::unicode {

enum class Version {
  unicode14,    // Python 3.11's unicodedata
  hugging_face  // Unicode 9, as in Hugging Face's Rust engine
};

enum class Form { nfc, nfd, nfkc, nfkd };

/// Returns the text in one of Unicode's normal forms. Characters that are newer than `version` stay as they are, and no other character
/// moves across them.
std::u32string normal_form(std::u32string_view text, Form form, Version version);

/// Returns the canonical composition (NFC) by Unicode 14.
std::u32string compose(std::u32string_view text);

/// Returns whether normal_form() may change or move the code point, or merge it into an earlier one. A text without such code points is its
/// own normal form.
bool may_change(char32_t code, Form form);
/// Returns the canonical decomposition (NFD, by Unicode 9) of a character. Returns an empty text if the character is its own decomposition.
std::u32string_view decomposition(char32_t code);
/// Sets `bit` for each code point for which may_change() is true.
void mark_changing(PageTable<std::uint8_t>& table, Form form, std::uint8_t bit);

}  // namespace tessera::unicode
