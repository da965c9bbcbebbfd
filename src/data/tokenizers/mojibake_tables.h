#pragma once

#include <cstdint>
#include <span>
#include <string_view>

/// Detects UTF-8 that was decoded with a one-byte encoding. Uses ftfy's tables.
namespace tessera::mojibake {

/// Returns whether the text contains a sequence of characters that ftfy considers wrongly decoded.
bool is_bad(std::u32string_view text);

/// Flags of a character. They say which kinds of UTF-8 bytes can become this character when a one-byte encoding decodes them.
enum Clue : std::uint8_t {
  first_of_2 = 1,
  first_of_3 = 2,
  first_of_4 = 4,
  continuation = 8,          // also set for a space, which may have been U+00A0
  continuation_strict = 16,  // like `continuation`, but without characters that are often meant literally: spaces, dashes, quotes
  western = 32               // the character is in Latin-1 or Windows-1252, above ASCII
};
std::uint8_t clues_of(char32_t code);

/// Returns the characters of bytes 0x80 to 0xFF in an encoding. `encoding` 0 is Windows-1252; the others follow in the order of
/// one_byte::Encoding.
std::span<const char32_t, 128> one_byte_page(std::size_t encoding);

/// For a C1 control, returns the Windows-1252 character, as web browsers do. Returns any other code point unchanged.
char32_t windows_1252(char32_t code);

}  // namespace tessera::mojibake
