#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Repairs, as ftfy does, UTF-8 that was damaged while it was treated as text in a one-byte encoding.
namespace tessera::damaged_utf8 {

/// Replaces spaces by byte A0 where this turns the bytes into UTF-8. Exception: byte C3 and a space can be the word U+00E0 (C3 A0) and the
/// space after this word, with byte A0 lost. In this case, inserts byte A0 before the space and keeps the space.
std::string restore_no_break_spaces(std::string bytes);

/// Replaces by U+FFFD each UTF-8 sequence in which bytes were lost. In place of a lost byte, the sequence has one_byte::lost_byte or `?`.
std::string replace_lost(std::string_view bytes);

/// Decodes UTF-8 to code points; also accepts CESU-8's surrogate pairs and Java's C0 80. Returns nullopt if the bytes are not
/// valid.
std::optional<std::u32string> decode_variants(std::string_view bytes);

}  // namespace tessera::damaged_utf8
