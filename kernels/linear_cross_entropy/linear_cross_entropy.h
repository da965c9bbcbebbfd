#pragma once

#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// The part of a linear layer's cross-entropy that lies between the matrix products. The caller computes the products.
/// From a tile of whole rows of logits, this part computes each row's loss and the gradient of the logits. A row's
/// target is sparse. It has `places` columns t(r, j) with weights w(r, j); a negative column means no target.
///   loss(r) = (sum over j of w(r, j)) log(sum over v of exp(logits(r, v))) - sum over j of w(r, j) logits(r, t(r, j))
///   gradient(r, v) = (sum over j of w(r, j)) exp(logits(r, v)) / (sum over u of exp(logits(r, u)))
///                    - sum of w(r, j) over all j with t(r, j) = v
/// A row without a target is ignored. Its loss and gradient are 0, even if its logits are NaN. In other rows, a NaN
/// makes the row's results NaN. Results do not depend on the number of threads and are the same in every run.
namespace tessera::kernels {

/// Rows of logits and of gradients may be padded: `pitch` is the distance between two rows in both arrays.
struct CrossEntropyTile {
  std::int64_t rows = 0;                  ///< may be 0
  std::int64_t columns = 0;               ///< V, at least 1
  const void* logits = nullptr;           ///< [rows, V]
  const std::int64_t* targets = nullptr;  ///< [rows, places], below V; equal targets must be adjacent (not checked here)
  float* losses = nullptr;                ///< out [rows]
  void* gradient = nullptr;               ///< out [rows, V]; null if not needed; may be `logits`; the padding may be overwritten
  DataType type = DataType::kFloat32;     ///< of the logits and the gradient
  std::int64_t places = 1;                ///< at least 1
  const float* weights = nullptr;         ///< [rows, places]; null if all are 1
  std::int64_t pitch = 0;                 ///< in elements, at least V; 0 means V

  std::int64_t row_pitch() const { return pitch == 0 ? columns : pitch; }
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const CrossEntropyTile& arguments);

/// The CPU kernel supports only float32.
namespace cpu {
Status cross_entropy_tile(const CrossEntropyTile& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// The function in this namespace runs on the current device, asynchronously on `stream` (a cudaStream_t). All rows must begin at a
/// multiple of 16 bytes, and a row may have at most 8,192 places.
namespace cuda {
Status cross_entropy_tile(const CrossEntropyTile& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status cross_entropy_tile(const CrossEntropyTile& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
