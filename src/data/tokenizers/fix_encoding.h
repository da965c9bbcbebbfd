#pragma once

#include <string>
#include <string_view>

#include "src/data/tokenizers/fix_text.h"

namespace tessera {

/// ftfy.fix_encoding: while the text, or parts of it, look like UTF-8 that was read in a one-byte encoding, decodes them. Level
/// `full` handles ten encodings, and bytes that were lost or became spaces; `mojibake` handles Latin-1 and Windows-1252 without
/// lost bytes. The levels below change nothing.
std::u32string fix_encoding(std::u32string text, Cleanup level);

}  // namespace tessera
