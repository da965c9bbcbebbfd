#pragma once

#include <set>
#include <string>
#include <vector>

namespace tessera {

/// A caption with its words in wrong orders (ARO's order tasks, Yuksekgonul et al. 2023, section 2.3).
class WordOrders {
 public:
  /// `lexicon`: a file of nouns and adjectives, lower case, one a line.
  explicit WordOrders(const std::string& lexicon);

  /// The caption, in lower case and without marks, then up to four other orders of its words: with its nouns and adjectives
  /// shuffled, with all its other words shuffled, with its runs of three words shuffled, and with the words of each such run
  /// shuffled. An order that would be the caption's own is left out. The same caption always gives the same orders.
  std::vector<std::string> of(const std::string& caption) const;

 private:
  std::set<std::string> lexicon_;
};

}  // namespace tessera
