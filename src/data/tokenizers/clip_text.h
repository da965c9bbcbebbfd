#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/data/tokenizers/fix_text.h"

/// Cleans and splits a caption before CLIP's byte pairs are applied.
namespace tessera::clip_text {

/// Classes of characters, as bits.
enum Class : std::uint8_t { letter = 1, number = 2, space = 4, unmatched = 8 };
std::uint8_t class_of(char32_t code);
std::uint8_t class_of(char ascii);

/// repaired() applies the cleanup `level`, then html.unescape twice, then collapses white space. clean() also converts to lower
/// case.
std::u32string repaired(std::string_view text, Cleanup level);
std::u32string clean(std::string_view text, Cleanup level);

/// Replaces each run of white space by a space, and strips white space at both ends.
void collapse_space(std::u32string& text);
void lower_case(std::u32string& text);

/// Returns whether the text consists of tabs, line breaks and printable ASCII other than `&`, so that clean() could change only
/// white space and case.
bool is_plain(std::string_view text);

/// Returns the end of the piece that CLIP's pattern matches at `begin`. The text must come from clean(), or be in lower case and satisfy
/// is_plain(). The character at `begin` must not be `unmatched` or `space`, because the pattern does not match these.
std::size_t piece_end(std::u32string_view text, std::size_t begin);
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace tessera::clip_text
