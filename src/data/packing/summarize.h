#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Makes a short text from an image's captions, for data sets without summaries (PyramidCLIP trains on summaries by a language model).
/// Bracketed text, links and tags are removed first. Then the function chooses, from the sentences of all captions, the sentence whose
/// words are most frequent on average (the first step of SumBasic, Nenkova and Vanderwende 2005). Words of fewer than four letters do not
/// count, and the first sentence wins a tie. A sentence of more than `max_words` words is cut to that number of words or, if there is a
/// comma in the second half of these words, at the last such comma. Returns an empty text if the captions hold no word.
std::string summarize(const std::vector<std::string>& captions, std::size_t max_words = 12);

}  // namespace tessera
