#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "src/data/formats/stored_embeddings.h"

namespace tessera {

/// How near duplicates are found (SemDeDup, Abbas et al. 2023, arXiv 2303.09540).
struct DuplicateSettings {
  double threshold = 0.95;     // least cosine of two near duplicates (the paper's 1 - epsilon)
  std::int64_t clusters = 0;   // 0: the square root of the number of rows
  std::int64_t nearest = 4;    // number of clusters in which each row is compared with the others: those with the most similar centers
  std::int64_t iterations = 10;
  std::string keep = "far";    // which row precedes the other of two: far (from its cluster's center, as in the paper), near, or first
  std::uint64_t seed = 0;
};

/// For each row of the embeddings: the row before it that it duplicates, and their cosine.
struct Duplicates {
  at::Tensor of;      // int64 [N]; -1: the row is kept
  at::Tensor cosine;  // float32 [N]; the greatest cosine with a row before it in one of its clusters, or -2 if there is none
};

/// Clusters the rows by k-means on the unit sphere, and compares all pairs of rows within each cluster. A row is a near duplicate if its
/// cosine with at least one row that precedes it is at least the threshold, whether that row is kept itself or not (as in the paper's
/// program). Pairs without a common cluster are not found. `progress` is called with the numbers of finished and of all rows, which count
/// once for each phase. Uses memory for the centers, 64 rows per center, and about 20 bytes per row and 12 for each cluster of a row. Throws
/// UserError for more clusters than rows.
Duplicates find_near_duplicates(const StoredEmbeddings& rows, const DuplicateSettings& settings,
                                const std::function<void(const char* phase, std::int64_t done, std::int64_t total)>& progress);

}  // namespace tessera
