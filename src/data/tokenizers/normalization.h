#pragma once

#include <string>
#include <string_view>

#include "src/data/tokenizers/unicode.h"

/// Unicode normalization (UAX #15) with tables of a fixed Unicode version.
namespace tessera::unicode {

enum class Version {
  unicode14,    // Python 3.11's unicodedata
  hugging_face  // the older tables of Hugging Face's Rust engine, in which newer marks are starters and U+11938 is not decomposed
};

/// Returns the canonical decomposition (NFD).
std::u32string decompose(std::u32string_view text, Version version);

/// Returns the canonical composition (NFC) by Unicode 14.
std::u32string compose(std::u32string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };

/// Returns the text in one of Unicode's normal forms, as Hugging Face's Rust engine does.
std::u32string normal_form(std::u32string_view text, Form form);

/// Returns whether normal_form() may change or move the code point. A text without such code points is its own normal form.
bool may_change(char32_t code, Form form);

/// Sets `bit` for each code point that composition may change or move, or may merge into an earlier code point. Composition leaves a
/// text without such code points unchanged.
void mark_composable(ClassTable& table, std::uint8_t bit);

}  // namespace tessera::unicode
