#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/index/sparse_vectors.h>
#include <tessera/index/token_names.h>

namespace tessera::index {

/// How weights become whole numbers: impact = round(weight / largest_weight * (2^impact_bits - 1)). A weight above
/// largest_weight is cut to it; one that rounds to 0 is left out.
struct Quantization {
  int impact_bits = 8;        // 8 or 16
  double largest_weight = 0;  // of an impact of 2^impact_bits - 1
  bool unit_length = false;   // documents and queries are scaled to length 1 first: scores are cosines

  std::int64_t largest_impact() const { return (std::int64_t{1} << impact_bits) - 1; }
};

/// A query as a search computes with it: weights are whole numbers of `unit` each.
struct QuantizedQuery {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> weights;  // at least 1
  double unit = 0;
};

/// Rounds a query's weights to 255 steps of its largest; to fewer where the sum of all products could pass 2^32 - 1. Weights
/// that round to 0 are left out.
QuantizedQuery quantize_query(std::span<const std::int32_t> tokens, std::span<const float> weights,
                              const Quantization& quantization);

/// A document that a search found.
struct Hit {
  std::int64_t document = 0;  // its number in this state of the index
  std::uint64_t product = 0;  // of the quantized query and document
  float score = 0;            // the product in the weights' units
};

/// Which documents a search may find. A token counts as active in a document if its impact is not 0.
struct Filter {
  std::vector<std::int32_t> must;       // all of them are active
  std::vector<std::int32_t> must_not;   // none of them is
  std::vector<std::int32_t> should;     // at least one of them is, unless the list is empty
  std::vector<std::int64_t> documents;  // only these numbers, which rise, if `only_documents`
  bool only_documents = false;
};

struct Hits {
  std::vector<Hit> best;  // by falling product, then by rising document number
  std::int64_t windows_skipped = 0;
};

/// What tokens are called in the index of that folder; reads nothing else. Throws UserError.
TokenNames names_of(const std::string& folder);

/// An inverted index of sparse vectors for exact search, opened for reading; see docs/index.md for its files.
/// Opening checks everything: all bytes against their checksums, and that each list is sound. An opened index stays as it
/// is while others change the folder. All functions can be called by several threads at once.
class Index {
 public:
  /// Throws UserError that names the file and what is wrong with it. `threads`: for the checks; 0 as many as the machine has.
  explicit Index(const std::string& folder, int threads = 0);
  ~Index();
  Index(Index&&) noexcept;

  /// Documents that are there, without removed ones.
  std::int64_t documents() const;
  /// One more than the largest document number; removed documents keep theirs until the index is compacted.
  std::int64_t document_numbers() const;
  bool removed(std::int64_t document) const;
  std::string_view id(std::int64_t document) const;
  /// Numbers of the documents of these ids, in their order. Throws UserError for an id that is not there.
  std::vector<std::int64_t> find(std::span<const std::string> ids) const;

  std::int64_t vocab_size() const;
  const Quantization& quantization() const;
  const TokenNames& names() const;
  std::int64_t postings() const;
  std::int64_t segments() const;
  std::int64_t file_bytes() const;

  /// Returns the `k` documents of the highest products with the query, of those above 0 that the filter allows, as
  /// computing the product with every document would. Equal products: the lower number goes first. Throws UserError
  /// for a `k` below 1 and for tokens outside the vocabulary.
  Hits search(const QuantizedQuery& query, std::int64_t k, const Filter& filter = {}) const;

  /// The documents that are there, with the weights that their impacts stand for.
  SparseVectors stored_vectors() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace tessera::index
