#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/data/tokenizers/fix_text.h"

/// The cleanup and splitting of a caption before CLIP's byte pairs.
namespace tessera::clip_text {

/// Classes of characters, as bits.
enum Class : std::uint8_t { letter = 1, number = 2, space = 4, unmatched = 8 };
std::uint8_t class_of(char32_t code);
std::uint8_t class_of(char ascii);

/// Applies the cleanup, applies html.unescape twice, and collapses white space; clean() also converts to lower case.
std::u32string repaired(std::string_view text, Cleanup level);
std::u32string clean(std::string_view text, Cleanup level);

/// Replaces each run of white space by a space, and strips white space at both ends.
void collapse_space(std::u32string& text);
void lower_case(std::u32string& text);

/// True if clean() could change only white space and case: the text is printable ASCII without `&`, tabs, line breaks.
bool is_plain(std::string_view text);

/// Returns the end of the piece that starts at `begin` (by CLIP's pattern) in cleaned text, or in lower-cased plain text.
/// Characters that the pattern does not match are `unmatched` or `space`; `begin` must not be one of them.
std::size_t piece_end(std::u32string_view text, std::size_t begin);
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace tessera::clip_text
