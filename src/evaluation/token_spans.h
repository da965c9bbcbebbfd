#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The bytes [begin, end) of `text` that each of its tokens stands for, by what the tokens spell (Embedder::token_texts):
/// spaces and case do not count, and a letter beyond ASCII may have lost its accent. A token that spells nothing gets an
/// empty range. Nothing where the tokens spell something else (an unknown word, a character that the tokenizer replaces),
/// or not the whole text though it is not `cut`.
std::optional<std::vector<std::array<std::int64_t, 2>>> token_spans(std::string_view text,
                                                                    const std::vector<std::string>& tokens, bool cut);

}  // namespace tessera
