#pragma once

#include <string>
#include <string_view>

#include "src/data/tokenizers/fix_text.h"

namespace tessera {

/// ftfy.fix_encoding: as long as the text looks like UTF-8 that was read in a one-byte encoding, decodes it, or the
/// parts of it that do. `full` knows ten encodings and bytes that were lost or became spaces; `mojibake` Latin-1 and
/// Windows-1252 with all bytes there. The levels below change nothing.
std::u32string fix_encoding(std::u32string text, Cleanup level);

}  // namespace tessera
