#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Makes a short text out of a picture's captions, for data sets without summaries (PyramidCLIP trains on those of a
/// language model). It consists of the captions' own words: what stands in brackets, links and tags are left out; of
/// all sentences of all captions the one is taken whose words are the most frequent ones on average (the first step of
/// SumBasic, Nenkova and Vanderwende 2005; words of fewer than four letters do not count), the first of several; it
/// ends after `max_words` words, at a comma among the second half of them where there is one. Empty where the captions
/// hold no word.
std::string summarize(const std::vector<std::string>& captions, std::size_t max_words = 12);

}  // namespace tessera
