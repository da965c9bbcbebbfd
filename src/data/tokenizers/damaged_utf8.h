#pragma once

#include <optional>
#include <string>
#include <string_view>

/// UTF-8 that suffered while it was taken for text in a one-byte encoding, as ftfy mends it.
namespace tessera::damaged_utf8 {

/// Spaces where only byte A0 makes UTF-8 become that byte; of " \xC3 " (U+00E0 alone) the space is kept as well.
std::string restore_no_break_spaces(std::string bytes);

/// Sequences in which bytes were lost (one_byte::lost_byte or ?) become U+FFFD.
std::string replace_lost(std::string_view bytes);

/// UTF-8 to code points, if it is valid; CESU-8's pairs and Java's C0 80 count as valid too.
std::optional<std::u32string> decode_variants(std::string_view bytes);

}  // namespace tessera::damaged_utf8
