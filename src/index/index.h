#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/index/manifest.h"
#include "src/index/sparse_vectors.h"
#include "src/index/token_names.h"

namespace tessera::index {

/// A query in the form that a search uses: weights are whole multiples of `unit`.
struct QuantizedQuery {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> weights;  // at least 1
  double unit = 0;
};

/// Rounds a query's weights to multiples of 1/255 of its largest weight, or to coarser steps if the sum of all products could
/// exceed 2^32 - 1. Weights that round to 0 are left out.
QuantizedQuery quantize_query(std::span<const std::int32_t> tokens, std::span<const float> weights,
                              const Quantization& quantization);

/// A document that a search found.
struct Hit {
  std::int64_t document = 0;  // the document's number in the opened index
  std::uint64_t product = 0;  // dot product of the quantized query and document
  float score = 0;            // `product`, scaled to approximate the dot product of the weights before quantization
};

/// Restricts the documents that a search may find. A token is active in a document if its impact is not 0.
struct Filter {
  std::vector<std::int32_t> must;       // tokens that must all be active
  std::vector<std::int32_t> must_not;   // tokens that must not be active
  std::vector<std::int32_t> should;     // tokens of which at least one must be active, unless the list is empty
  std::vector<std::int64_t> documents;  // if `only_documents` is true, the only documents allowed, in ascending order
  bool only_documents = false;
};

struct Hits {
  std::vector<Hit> best;  // sorted by decreasing product, then by increasing document number
  std::int64_t windows_skipped = 0;
};

/// Reads only the token names of the index in a folder. Throws UserError.
TokenNames names_of(const std::string& folder);

/// An inverted index of sparse vectors for exact search, opened for reading; docs/index.md describes its files. Opening an index verifies
/// the checksums of all bytes and checks that each list is valid. An opened index does not change when other processes change the folder.
/// All functions are thread-safe.
class Index {
 public:
  /// Throws UserError naming the file and the problem. `threads` are used for the checks; 0 uses all cores.
  explicit Index(const std::string& folder, int threads = 0);

  /// The number of documents, without removed ones.
  std::int64_t documents() const;
  /// One more than the largest document number; removed documents keep their numbers until the index is compacted.
  std::int64_t document_numbers() const;
  std::string_view id(std::int64_t document) const;
  /// Returns the numbers of the documents with these ids, in the order of the ids. Throws UserError for an unknown id.
  std::vector<std::int64_t> find(std::span<const std::string> ids) const;

  std::int64_t vocab_size() const { return manifest_.layout.vocab_size; }
  const Quantization& quantization() const { return manifest_.quantization; }
  const TokenNames& names() const { return names_; }
  std::int64_t postings() const;
  std::int64_t segments() const { return static_cast<std::int64_t>(segments_.size()); }
  std::int64_t file_bytes() const;

  /// Returns the `k` documents with the greatest products with the query. Documents count only if their product is above 0 and the filter
  /// allows them. The result is exact. Among equal products, the lower document number comes first. Throws UserError for a `k` below 1 and
  /// for tokens outside the vocabulary.
  Hits search(const QuantizedQuery& query, std::int64_t k, const Filter& filter = {}) const;

  /// Returns all documents that are not removed. Their weights are reconstructed from the stored impacts.
  SparseVectors stored_vectors() const;

 private:
  Manifest manifest_;
  TokenNames names_;
  std::vector<OpenSegment> segments_;
};

/// Searches with every row of `queries` in parallel. Throws UserError like Index::search().
std::vector<Hits> search_all(const Index& index, const SparseVectors& queries, std::int64_t k,
                             const Filter& filter = {}, int threads = 0);

}  // namespace tessera::index
