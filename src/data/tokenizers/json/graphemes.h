#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::json_tokenizer {

/// A grapheme is a character with all characters that belong to it. Returns the end of the grapheme that starts at position `at`. Follows
/// UAX #29, but does not join flags and Indic conjuncts. This makes no difference, because flags and Indic conjuncts have at least six
/// bytes, and the caller treats graphemes of this length character by character.
std::size_t end_of_grapheme(std::string_view text, std::size_t at);

}  // namespace tessera::json_tokenizer
