#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::json_tokenizer {

/// Behind the grapheme that begins at `at`: a character with what joins it (UAX #29, without flags and Indic conjuncts, whose
/// graphemes have at least six bytes).
std::size_t end_of_grapheme(std::string_view text, std::size_t at);

}  // namespace tessera::json_tokenizer
