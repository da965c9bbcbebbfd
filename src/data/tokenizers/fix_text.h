#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Which part of ftfy 6.3 to apply before a caption is tokenized. Each level includes the levels before it.
enum class Cleanup : std::uint8_t {
  none,      // changes nothing
  basic,     // fixes entities, C1 controls, ligatures, widths, quotes and line breaks; removes controls; applies NFC; repairs no encodings
  mojibake,  // also repairs UTF-8 that was read as Latin-1 or Windows-1252
  full       // applies all of ftfy's fixes
};

/// Does what ftfy.fix_text does, limited to the given level.
std::u32string fix_text(std::u32string_view text, Cleanup level);

}  // namespace tessera
