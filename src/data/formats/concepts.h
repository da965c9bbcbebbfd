#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/base/random.h>

namespace tessera {

/// Finds the entries of a list in texts by substring matching as in MetaCLIP (Xu et al. 2023, arXiv 2309.16671): an entry is found where it
/// stands between white space, and the characters , . ; : ? ! ` are words of their own. Case counts. Entries are split into words like texts
/// are, so an entry with such a character is found, too, which MetaCLIP's program does not do. Thread-safe.
///
/// The entries are a tree of words, so a text is searched from each of its words on, for as long as an entry continues.
class ConceptMatcher {
 public:
  /// Throws UserError naming `origin` and the line if an entry has no words, or the same words as an earlier one.
  ConceptMatcher(const std::vector<std::string>& entries, const std::string& origin);

  /// Returns the indices of the entries that at least one of the texts contains, ascending.
  std::vector<std::int32_t> find(const std::vector<std::string>& texts) const;

 private:
  struct WordHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  struct EdgeHash {
    std::size_t operator()(std::uint64_t edge) const { return spread_bits(edge); }
  };
  static std::uint64_t edge(std::uint32_t node, std::uint32_t word) { return std::uint64_t{node} << 32 | word; }

  std::unordered_map<std::string, std::uint32_t, WordHash, std::equal_to<>> words_;
  std::unordered_map<std::uint64_t, std::uint32_t, EdgeHash> edges_;  // from a node and a word to the next node; node 0 is the root
  std::vector<std::int32_t> entry_of_node_;                          // -1: no entry ends here
};

/// A list of entries, and for each the number of a data set's samples that contain it.
struct ConceptCounts {
  std::vector<std::string> entries;
  std::vector<std::int64_t> counts;

  /// Returns 1 - prod(1 - min(1, threshold / count)) over the entries `found`: the probability that at least one of a sample's entries
  /// keeps it (MetaCLIP, algorithm 1). Without entries, returns 0.
  double keep_probability(const std::vector<std::int32_t>& found, double threshold) const;
};

/// Reads a list of entries: one per line, or a JSON list of texts if the name ends in .json (MetaCLIP's metadata.json). Throws UserError
/// naming the file.
std::vector<std::string> read_concepts(const std::string& path);

/// Writes or reads a file with a line for each entry: count, tab, entry. Throws UserError naming the file and the line.
void write_concept_counts(const std::string& path, const ConceptCounts& counts);
ConceptCounts read_concept_counts(const std::string& path);

}  // namespace tessera
