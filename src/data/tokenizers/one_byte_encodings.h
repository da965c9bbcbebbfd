#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// The one-byte encodings in which UTF-8 is commonly misread, in the order in which ftfy tries them.
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

/// Whether an encoding is a Windows encoding. They are used as on the Web: bytes without a character are C1 controls.
constexpr bool is_windows(Encoding encoding) {
  return encoding >= windows_1252 && encoding <= windows_1257;
}

/// Returns bits: bit e is set if encoding e has all characters of the text. U+FFFD is the Windows encodings' lost byte.
std::uint16_t encodings_of(std::u32string_view text);

/// Returns the bytes of a text; the encoding must have all its characters.
std::string encode(std::u32string_view text, Encoding encoding);

}  // namespace tessera::one_byte
