#pragma once

#include <string>
#include <string_view>

/// BERT's way from text to words. Words are separated by white space and punctuation.
namespace tessera::bert_text {

/// The text with its controls removed, white space as U+0020, CJK characters set off by spaces, and with `lower_case`
/// in lower case without accents.
std::u32string clean(std::u32string_view text, bool lower_case);

/// True if `clean` would at most lower the case and make white space spaces: printable ASCII, tabs, line breaks.
bool is_plain(std::string_view text);

/// The end of the word that begins at `begin` of cleaned or plain text, which is no white space: punctuation stands
/// alone.
std::size_t word_end(std::u32string_view text, std::size_t begin);
std::size_t word_end(std::string_view text, std::size_t begin);

}  // namespace tessera::bert_text
