#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/features.h>

namespace tessera {

/// A batch that is split into chunks of rows; the last chunk may be smaller.
struct ChunkedRows {
  std::int64_t rows = 0;
  std::int64_t chunk = 1;

  std::int64_t count() const { return (rows + chunk - 1) / chunk; }
  std::int64_t first(std::int64_t index) const { return index * chunk; }
  std::int64_t size(std::int64_t index) const { return std::min(chunk, rows - first(index)); }
};

/// A function that runs the towers' backward pass for one chunk, given some of the towers' outputs and the gradients of these outputs.
/// `last` is true for the last chunk.
using FeatureBackward =
    std::function<void(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool last)>;

/// Runs the second pass of GradCache (Gao et al. 2021): encodes each chunk again, now with gradients, and backpropagates the chunk's part
/// of the gradients of `leaves`. `leaves` are the first pass's features of all rows. To give them gradients, the caller must first call
/// require_gradients() and run the loss's backward pass. encode(i) must return the same features for chunk i as in the first pass. The
/// teacher's features, and features that the loss did not use, are skipped.
void backward_through_chunks(const Features& leaves, const ChunkedRows& chunks,
                             const std::function<Features(std::int64_t index)>& encode,
                             const FeatureBackward& backward);

}  // namespace tessera
