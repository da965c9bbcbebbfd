#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/features.h>

namespace tessera {

/// A batch cut into chunks of rows, the last one perhaps smaller.
struct ChunkedRows {
  std::int64_t rows = 0;
  std::int64_t chunk = 1;

  std::int64_t count() const { return (rows + chunk - 1) / chunk; }
  std::int64_t first(std::int64_t index) const { return index * chunk; }
  std::int64_t size(std::int64_t index) const { return std::min(chunk, rows - first(index)); }
};

/// Goes back through some outputs of the towers from their gradients; `last`: it is the last chunk.
using FeatureBackward =
    std::function<void(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool last)>;

/// The second pass of GradCache (Gao et al. 2021): each chunk is encoded again, now with gradients, and its part of the
/// gradients of `leaves` (require_gradients() of the first pass's features of all rows, after the loss's backward pass)
/// goes back through it. encode(i) must give what it gave for chunk i in the first pass. Features that the loss did not
/// use, and those of a teacher, are left out.
void backward_through_chunks(const Features& leaves, const ChunkedRows& chunks,
                             const std::function<Features(std::int64_t index)>& encode,
                             const FeatureBackward& backward);

}  // namespace tessera
