#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns the range of bytes [begin, end) of `text` that each token covers. Matches the tokens' spelling (Embedder::token_texts) with the
/// text. Ignores spaces and case, and allows that a non-ASCII letter has lost its accent. A token without a spelling gets an empty range.
/// Returns nullopt if the tokens spell something else (because of an unknown word or a character that the tokenizer replaces). Also returns
/// nullopt if they do not cover the whole text and `cut` is false, that is, if the text was not truncated.
std::optional<std::vector<std::array<std::int64_t, 2>>> token_spans(std::string_view text,
                                                                    const std::vector<std::string>& tokens, bool cut);

}  // namespace tessera
