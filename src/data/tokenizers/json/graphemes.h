#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::json_tokenizer {

/// Returns the end of the grapheme that starts at `at`: a character and all that belong to it (UAX #29, except for flags and
/// Indic conjuncts, which have at least six bytes).
std::size_t end_of_grapheme(std::string_view text, std::size_t at);

}  // namespace tessera::json_tokenizer
