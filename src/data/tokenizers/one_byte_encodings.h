#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// The one-byte encodings with which UTF-8 is often decoded by mistake, in the order in which ftfy tries them.
namespace tessera::one_byte {

enum Encoding : std::uint8_t {
  latin_1,
  windows_1252,
  windows_1251,
  windows_1250,
  windows_1253,
  windows_1254,
  windows_1257,
  iso_8859_2,
  mac_roman,
  cp437,
  encoding_count
};

/// The byte that represents a lost character (U+FFFD) in the Windows encodings, as in ftfy.
constexpr char lost_byte = 0x1A;

/// Returns whether an encoding is a Windows encoding. In these encodings, a byte to which no character is assigned decodes to the code
/// point of the same value. Below 0xA0, this code point is a C1 control, as on the Web.
constexpr bool is_windows(Encoding encoding) {
  return encoding >= windows_1252 && encoding <= windows_1257;
}

/// Returns a set of encodings: bit e is set if encoding e has all characters of the text. The Windows encodings also have U+FFFD, which is
/// written as lost_byte.
std::uint16_t encodings_of(std::u32string_view text);

/// Returns the bytes of a text in an encoding, which must have all characters of the text.
std::string encode(std::u32string_view text, Encoding encoding);

}  // namespace tessera::one_byte
