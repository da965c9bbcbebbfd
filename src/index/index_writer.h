#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/index/index.h"
#include "src/index/sparse_vectors.h"
#include "src/index/token_names.h"

/// Functions that change an index. Only one process at a time may change a folder; other processes get a UserError. Each function ends by
/// renaming one file, the manifest. If the process is killed or the disk fills up before that, the index stays unchanged. Readers need not
/// wait; they get the state before or after the change.
namespace tessera::index {

struct BuildSettings {
  int impact_bits = 8;
  double largest_weight = 0;  // the weight that gets the largest impact; 0: the largest weight of the documents
  bool unit_length = false;
  TokenNames names;        // stored in the index, so that searches can name tokens
  bool overwrite = false;  // replace an existing index
  /// The number of documents in a window, a multiple of 64 up to 65,536. A search scores the documents window by window.
  std::int64_t window = 65'536;
  int threads = 0;  // 0: all cores
};

struct Change {
  std::int64_t documents = 0;    // number of documents that were added or removed, or that a compaction kept
  std::int64_t replaced = 0;     // number of added documents that replaced an older one
  std::int64_t cut_weights = 0;  // number of weights that exceeded the largest weight of the index and were reduced to it
};

/// Builds an index in `folder`, which is created if necessary. Throws UserError if ids are not unique, an index already exists, or
/// files cannot be written.
Change build_index(const std::string& folder, SparseVectors documents, const BuildSettings& settings);

/// Adds documents as a new segment. Existing segments are not rewritten; only their ids are read. With `replace`, older documents with the
/// same ids are removed in the same step. Without `replace`, throws UserError if an id already exists.
Change add_documents(const std::string& folder, SparseVectors documents, bool replace = false, int threads = 0);

/// Marks documents as removed. If an id does not exist, throws UserError and removes nothing; with `missing_ok`, ignores the id.
Change remove_documents(const std::string& folder, std::span<const std::string> ids, bool missing_ok = false,
                        int threads = 0);

/// Writes the remaining documents (those not marked as removed) into one new segment, in the same order and with the same impacts.
Change compact_index(const std::string& folder, int threads = 0);

}  // namespace tessera::index
