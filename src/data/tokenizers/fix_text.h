#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Which part of ftfy 6.3 to apply before a caption is tokenized. Each level includes the levels before it.
enum class Cleanup : std::uint8_t {
  none,      // nothing
  basic,     // entities, C1 controls, ligatures, widths, quotes, line breaks, controls and NFC, but no repair of encodings
  mojibake,  // also the repair of UTF-8 that was read as Latin-1 or Windows-1252
  full       // all of it
};

/// Does what ftfy.fix_text does, limited to the given level.
std::u32string fix_text(std::u32string_view text, Cleanup level);

}  // namespace tessera
