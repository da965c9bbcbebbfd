#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::json_tokenizer {

/// Returns the end of the grapheme that starts at `at`, that is, a character and all characters that belong to it. Follows UAX #29, except
/// for flags and Indic conjuncts. These exceptions make no difference, because flags and Indic conjuncts have at least six bytes, and the
/// caller treats graphemes of this length character by character.
std::size_t end_of_grapheme(std::string_view text, std::size_t at);

}  // namespace tessera::json_tokenizer
