#pragma once

#include <string>
#include <string_view>
#include <vector>

/// BERT's way from text to words.
namespace tessera::bert_text {

/// Words in order: white space splits, punctuation and CJK characters stand alone. `lower_case` also removes accents.
std::vector<std::u32string> words(std::u32string_view text, bool lower_case);

}  // namespace tessera::bert_text
