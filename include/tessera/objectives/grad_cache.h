#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/features.h>

namespace tessera {

/// A batch split into chunks of rows; the last one may be smaller.
struct ChunkedRows {
  std::int64_t rows = 0;
  std::int64_t chunk = 1;

  std::int64_t count() const { return (rows + chunk - 1) / chunk; }
  std::int64_t first(std::int64_t index) const { return index * chunk; }
  std::int64_t size(std::int64_t index) const { return std::min(chunk, rows - first(index)); }
};

/// Runs the backward pass from the gradients of some outputs of the towers; `last` is true for the last chunk.
using FeatureBackward =
    std::function<void(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool last)>;

/// Runs the second pass of GradCache (Gao et al. 2021): encodes each chunk again, now with gradients, and backpropagates its part
/// of the gradients of `leaves` through it. `leaves` are the first pass's features of all rows after require_gradients() and the
/// loss's backward pass. encode(i) must return the same features as in the first pass for chunk i. Features that the loss did not
/// use, and those of a teacher, are skipped.
void backward_through_chunks(const Features& leaves, const ChunkedRows& chunks,
                             const std::function<Features(std::int64_t index)>& encode,
                             const FeatureBackward& backward);

}  // namespace tessera
