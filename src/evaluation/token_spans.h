#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// Returns readable text for each token. The text of a token that starts a word begins with a space; that of a special token is empty.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, const std::vector<std::int64_t>& ids);

/// Returns the range of bytes [begin, end) of `text` that each token covers. Matches the tokens' spelling (token_texts) with the
/// text. Ignores spaces and case, and allows that a non-ASCII letter has lost its accent. A token without a spelling gets an empty range.
/// Returns nullopt if the tokens spell something else (because of an unknown word or a character that the tokenizer replaces). If the text
/// was not truncated (`cut` is false), also returns nullopt if the tokens do not cover all of it.
std::optional<std::vector<std::array<std::int64_t, 2>>> token_spans(std::string_view text,
                                                                    const std::vector<std::string>& tokens, bool cut);

/// A word of a text.
struct TextWord {
  std::string text;
  std::array<std::int64_t, 2> span = {-1, -1};  // its bytes [begin, end) of the text; -1 if the tokens do not spell the text
  std::vector<std::int64_t> tokens;             // the positions of its tokens
};

/// Joins tokens (token_texts) to words: tokens with no space between them are one word, except in Chinese and Japanese. Punctuation at the
/// ends of words belongs to no word. `cut` is as in token_spans().
std::vector<TextWord> words_of(const std::string& text, const std::vector<std::string>& tokens, bool cut);

}  // namespace tessera
