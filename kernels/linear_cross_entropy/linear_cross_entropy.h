#pragma once

#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// What a linear layer's cross-entropy does between its matrix products, which are the caller's: from a tile of logits,
/// whole rows of them, each row's loss and the logits' gradient. A row's target is sparse: `places` columns t(r, j) of
/// weight w(r, j), of which negative ones are no target.
///   loss(r) = (sum over j of w(r, j)) log(sum over v of exp(logits(r, v))) - sum over j of w(r, j) logits(r, t(r, j))
///   gradient(r, v) = (sum over j of w(r, j)) exp(logits(r, v)) / (sum of the row's) - sum of w(r, j) with t(r, j) = v
/// A row without a target is ignored: loss 0, gradient 0, whatever its logits hold. A NaN makes its row's results NaN.
/// Results don't depend on the number of threads and are the same in every run.
namespace tessera::kernels {

/// All contiguous.
struct CrossEntropyTile {
  std::int64_t rows = 0;                  ///< may be 0
  std::int64_t columns = 0;               ///< V, at least 1
  const float* logits = nullptr;          ///< [rows, V]
  const std::int64_t* targets = nullptr;  ///< [rows, places], below V, equal ones side by side; the caller has checked
  float* losses = nullptr;                ///< out [rows]
  void* gradient = nullptr;               ///< out [rows, V]; null: not wanted; in float32 it may be `logits`
  DataType type = DataType::kFloat32;     ///< of the gradient
  std::int64_t places = 1;                ///< at least 1
  const float* weights = nullptr;         ///< [rows, places]; null: all 1
};

/// Failure with a line naming the first bad argument.
Status check(const CrossEntropyTile& arguments);

/// A float32 gradient.
namespace cpu {
Status cross_entropy_tile(const CrossEntropyTile& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// On the current device, asynchronous on `stream` (a cudaStream_t).
namespace cuda {
Status cross_entropy_tile(const CrossEntropyTile& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status cross_entropy_tile(const CrossEntropyTile& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
