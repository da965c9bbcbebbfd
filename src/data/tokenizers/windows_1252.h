#pragma once

#include <array>

namespace tessera::unicode {

/// The characters of bytes 0x80-0x9F in Windows-1252; the five bytes it leaves undefined stay C1 controls (as on the
/// Web).
constexpr std::array<char32_t, 32> windows_1252_high = {0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                                        0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8D,   0x017D, 0x8F,
                                                        0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                                        0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

/// The Windows-1252 character of a C1 control; any other code point is returned as it is.
constexpr char32_t windows_1252(char32_t code) {
  return code >= 0x80 && code <= 0x9F ? windows_1252_high[code - 0x80] : code;
}

}  // namespace tessera::unicode
