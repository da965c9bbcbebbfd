#pragma once

#include <string>
#include <string_view>

/// Splits text into words as BERT does: at white space and punctuation.
namespace tessera::bert_text {

/// Returns the text without control characters, with each white space character replaced by U+0020, and with spaces around CJK
/// characters. With `lower_case`, it is also in lower case and without accents.
std::u32string clean(std::u32string_view text, bool lower_case);

/// Returns whether the text consists of printable ASCII, tabs and line breaks, so that clean() would change only case and white
/// space.
bool is_plain(std::string_view text);

/// Returns the end of the word that starts at `begin` in cleaned or plain text. `begin` must not be at white space. A
/// punctuation character is a word of its own.
std::size_t word_end(std::u32string_view text, std::size_t begin);
std::size_t word_end(std::string_view text, std::size_t begin);

}  // namespace tessera::bert_text
