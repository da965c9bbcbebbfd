#pragma once

#include <string>
#include <string_view>

/// BERT's splitting of text into words, which are separated by white space and punctuation.
namespace tessera::bert_text {

/// Returns the text without controls, with white space as U+0020 and spaces around CJK characters, and, with `lower_case`, in
/// lower case and without accents.
std::u32string clean(std::u32string_view text, bool lower_case);

/// True if `clean` would at most change case and white space: printable ASCII, tabs, line breaks.
bool is_plain(std::string_view text);

/// Returns the end of the word that starts at `begin` in cleaned or plain text. `begin` must not be white space; a punctuation
/// character is a word of its own.
std::size_t word_end(std::u32string_view text, std::size_t begin);
std::size_t word_end(std::string_view text, std::size_t begin);

}  // namespace tessera::bert_text
