#pragma once

#include <set>
#include <string>
#include <vector>

namespace tessera {

/// Makes wrong word orders of captions (ARO's order tasks, Yuksekgonul et al. 2023, section 2.3).
class WordOrders {
 public:
  /// `lexicon` is a file of nouns and adjectives in lower case, one per line.
  explicit WordOrders(const std::string& lexicon);

  /// Returns the caption in lower case and without punctuation, then up to four other orders of its words. Each of these shuffles one
  /// thing: the nouns and adjectives, all other words, the order of the caption's runs of three words, or the words within each run. Orders
  /// equal to the caption's own are left out. The same caption always yields the same orders.
  std::vector<std::string> of(const std::string& caption) const;

 private:
  std::set<std::string> lexicon_;
};

}  // namespace tessera
