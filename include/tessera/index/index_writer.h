#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <tessera/index/index.h>
#include <tessera/index/sparse_vectors.h>
#include <tessera/index/token_names.h>

/// What changes an index. Each function works on a folder that one process at a time may change (others get a UserError), and
/// ends with the renaming of one file, the manifest: whatever happens before, a killed process or a full disk, leaves the index
/// as it was. Readers need not wait, and see the state before or after.
namespace tessera::index {

struct BuildSettings {
  int impact_bits = 8;
  double largest_weight = 0;  // 0: the largest of the documents
  bool unit_length = false;
  TokenNames names;        // kept in the index, so that searches can name tokens
  bool overwrite = false;  // an index that is there already may go
  /// Documents of one window, a multiple of 64 up to 65,536.
  std::int64_t window = 65'536;
  int threads = 0;  // 0: as many as the machine has
};

struct Change {
  std::int64_t documents = 0;    // added, removed, or kept by a compaction
  std::int64_t replaced = 0;     // of those added, documents whose older ones were removed
  std::int64_t cut_weights = 0;  // weights above the largest that the index can hold
};

/// Builds an index in `folder`, which is made if it is not there. Throws UserError: documents without a name of their own, an
/// index that is there already, files that cannot be written.
Change build_index(const std::string& folder, SparseVectors documents, const BuildSettings& settings);

/// Adds documents as a new segment; its cost is that of the added documents and of looking for their ids. Throws UserError if
/// an id is there already, unless `replace` is set, which removes the older documents in the same step.
Change add_documents(const std::string& folder, SparseVectors documents, bool replace = false, int threads = 0);

/// Marks documents as removed. Throws UserError, and removes none, if an id is not there, unless `missing_ok` is set.
Change remove_documents(const std::string& folder, std::span<const std::string> ids, bool missing_ok = false,
                        int threads = 0);

/// Writes all documents that are there as one segment, in their order, with the same impacts; removed ones go for good.
Change compact_index(const std::string& folder, int threads = 0);

}  // namespace tessera::index
