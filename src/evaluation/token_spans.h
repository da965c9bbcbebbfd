#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns the bytes [begin, end) of `text` that each token covers, by matching the tokens' spelling (Embedder::token_texts)
/// with the text. Spaces and case do not count, and a non-ASCII letter may have lost its accent. A token without spelling gets
/// an empty range. Returns nothing if the tokens spell something else (an unknown word, a character that the tokenizer
/// replaces), or if they do not cover the whole text although it is not `cut`.
std::optional<std::vector<std::array<std::int64_t, 2>>> token_spans(std::string_view text,
                                                                    const std::vector<std::string>& tokens, bool cut);

}  // namespace tessera
