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
/// Returns nullopt if the tokens spell something else (because of an unknown word or a character that the tokenizer replaces). If the text
/// was not truncated (`cut` is false), also returns nullopt if the tokens do not cover all of it.
std::optional<std::vector<std::array<std::int64_t, 2>>> token_spans(std::string_view text,
                                                                    const std::vector<std::string>& tokens, bool cut);

}  // namespace tessera
