#pragma once

#include <string>
#include <string_view>

#include "src/data/tokenizers/caption_cleanup.h"

namespace tessera {

/// Does what ftfy.fix_encoding does: decodes the text or parts of it, again and again, as long as they look like UTF-8 that was read in a
/// one-byte encoding. Level `full` handles ten encodings, and bytes that were lost or became spaces. Level `mojibake` handles Latin-1 and
/// Windows-1252 without lost bytes. Lower levels change nothing.
std::u32string fix_encoding(std::u32string text, Cleanup level);

/// Detects UTF-8 that was decoded with a one-byte encoding. Uses ftfy's tables.
namespace mojibake {

/// Returns whether the text contains a sequence of characters that ftfy considers wrongly decoded.
bool is_bad(std::u32string_view text);

/// For a C1 control, returns the Windows-1252 character, as web browsers do. Returns any other code point unchanged.
char32_t windows_1252(char32_t code);

}  // namespace mojibake
}  // namespace tessera
