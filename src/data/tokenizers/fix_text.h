#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// How much of ftfy 6.3 to apply before a caption is tokenized; each level includes those before it.
enum class Cleanup : std::uint8_t {
  none,   // nothing
  basic,  // all but the repair of encodings: entities, C1 controls, ligatures, widths, quotes, line breaks, controls,
          // NFC
  mojibake,  // and UTF-8 that was read as Latin-1 or Windows-1252
  full       // all of it
};

/// ftfy.fix_text at the given level.
std::u32string fix_text(std::u32string_view text, Cleanup level);

}  // namespace tessera
