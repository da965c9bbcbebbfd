#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::config {

/// Returns true if the text has a Unicode noncharacter (U+FFFE, U+1FFFF, U+FDD0, ...). YAML does not allow them, and yaml-cpp
/// silently replaces them.
inline bool holds_noncharacter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 2; i < text.size(); ++i) {
    const bool is_last_of_plane =
        (byte(i) == 0xBE || byte(i) == 0xBF) && byte(i - 1) == 0xBF && (byte(i - 2) & 0x0F) == 0x0F;
    const bool is_arabic_gap = byte(i - 2) == 0xEF && byte(i - 1) == 0xB7 && byte(i) >= 0x90 && byte(i) <= 0xAF;
    if (is_last_of_plane || is_arabic_gap) return true;
  }
  return false;
}

}  // namespace tessera::config
