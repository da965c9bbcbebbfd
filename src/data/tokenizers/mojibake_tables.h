#pragma once

#include <cstdint>
#include <span>
#include <string_view>

/// What UTF-8 looks like once it was read in a one-byte encoding, by ftfy's tables.
namespace tessera::mojibake {

/// True if some sequence of characters is one that ftfy takes for wrongly decoded text.
bool is_bad(std::u32string_view text);

/// What bytes of UTF-8 a character may be in one of the encodings, as bits.
enum Clue : std::uint8_t {
  first_of_2 = 1,
  first_of_3 = 2,
  first_of_4 = 4,
  continuation = 8,          // a space too: it may have been U+00A0
  continuation_strict = 16,  // without those that often stand for themselves: spaces, dashes, quotes
  western = 32               // the character is in Latin-1 or Windows-1252, above ASCII
};
std::uint8_t clues_of(char32_t code);

/// The characters of bytes 0x80 to 0xFF of an encoding, counted from Windows-1252.
std::span<const char32_t, 128> one_byte_page(std::size_t encoding);

/// The Windows-1252 character of a C1 control, as the Web takes it; any other code point is returned as it is.
char32_t windows_1252(char32_t code);

}  // namespace tessera::mojibake
