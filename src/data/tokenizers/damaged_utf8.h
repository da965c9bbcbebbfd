#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Repairs UTF-8 that was damaged while it was treated as text in a one-byte encoding, as ftfy does.
namespace tessera::damaged_utf8 {

/// Replaces spaces by byte A0 where this makes the bytes UTF-8. In " \xC3 " (the word U+00E0) the space is kept, too.
std::string restore_no_break_spaces(std::string bytes);

/// Replaces sequences that lost bytes (one_byte::lost_byte or ?) by U+FFFD.
std::string replace_lost(std::string_view bytes);

/// Decodes UTF-8 to code points, or returns nullopt if it is not valid; accepts CESU-8's pairs and Java's C0 80.
std::optional<std::u32string> decode_variants(std::string_view bytes);

}  // namespace tessera::damaged_utf8
