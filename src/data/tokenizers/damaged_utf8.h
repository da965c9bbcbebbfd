#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Repairs, as ftfy does, UTF-8 that was damaged while it was treated as text in a one-byte encoding.
namespace tessera::damaged_utf8 {

/// Replaces a space with byte A0 where this makes the bytes valid UTF-8. Exception: byte C3 before a space may be the rest of the word "a"
/// with a grave accent (U+00E0, bytes C3 A0). In this case, inserts the lost byte A0 before the space and keeps the space.
std::string restore_no_break_spaces(std::string bytes);

/// Replaces each UTF-8 sequence that lost bytes with U+FFFD. In the input, one_byte::lost_byte or `?` stands in place of a lost byte.
std::string replace_lost(std::string_view bytes);

/// Decodes UTF-8 to code points; also accepts CESU-8's surrogate pairs and Java's C0 80. Returns nullopt if the bytes are not
/// valid.
std::optional<std::u32string> decode_variants(std::string_view bytes);

}  // namespace tessera::damaged_utf8
