#pragma once

#include <cstdint>
#include <vector>

#include "src/index/index.h"
#include "src/index/sparse_vectors.h"

namespace tessera::index {

/// Searches with every row of `queries` in parallel. Throws UserError like Index::search().
std::vector<Hits> search_all(const Index& index, const SparseVectors& queries, std::int64_t k,
                             const Filter& filter = {}, int threads = 0);

}  // namespace tessera::index
