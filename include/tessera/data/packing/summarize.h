#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Makes a short text from an image's captions, for data sets without summaries (PyramidCLIP trains on summaries by a language
/// model). Text in brackets, links and tags are removed first. The result is the sentence, among those of all captions, with
/// the highest average word frequency (the first step of SumBasic, Nenkova and Vanderwende 2005; words of fewer than four
/// letters do not count; the first sentence wins a tie). It is cut after `max_words` words, or at a comma within the second
/// half of them if there is one. Returns an empty text if the captions hold no word.
std::string summarize(const std::vector<std::string>& captions, std::size_t max_words = 12);

}  // namespace tessera
