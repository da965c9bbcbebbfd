#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Repairs, as ftfy does, UTF-8 that was damaged while it was treated as text in a one-byte encoding.
namespace tessera::damaged_utf8 {

/// Replaces spaces by byte A0 where this turns the bytes into UTF-8. Where byte C3 and a space stand for the word U+00E0 and the space
/// after it, keeps the space and inserts byte A0 before it.
std::string restore_no_break_spaces(std::string bytes);

/// Replaces each sequence that has lost bytes with U+FFFD. A lost byte appears as one_byte::lost_byte or `?`.
std::string replace_lost(std::string_view bytes);

/// Decodes UTF-8 to code points; also accepts CESU-8's surrogate pairs and Java's C0 80. Returns nullopt if the bytes are not
/// valid.
std::optional<std::u32string> decode_variants(std::string_view bytes);

}  // namespace tessera::damaged_utf8
