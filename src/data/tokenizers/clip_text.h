#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/data/tokenizers/fix_text.h"

/// What happens to a caption before CLIP's byte pairs.
namespace tessera::clip_text {

/// Classes of a character, as bits.
enum Class : std::uint8_t { letter = 1, number = 2, space = 4, unmatched = 8 };
std::uint8_t class_of(char32_t code);
std::uint8_t class_of(char ascii);

/// Cleanup, html.unescape twice, white space collapsed; clean() is in lower case, too.
std::u32string repaired(std::string_view text, Cleanup level);
std::u32string clean(std::string_view text, Cleanup level);

/// Each run of white space becomes a space, none stays at either end.
void collapse_space(std::u32string& text);
void lower_case(std::u32string& text);

/// True if of all steps only white space and lower case can change the text: printable ASCII without `&`, tabs, line
/// breaks.
bool is_plain(std::string_view text);

/// The end of the piece that begins at `begin` (CLIP's pattern) in cleaned text, or in lower-cased plain text. A
/// character that the pattern does not match is `unmatched` or `space`, and no piece may begin there.
std::size_t piece_end(std::u32string_view text, std::size_t begin);
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace tessera::clip_text
