#pragma once

#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// The part of a linear layer's cross-entropy between its matrix products, which the caller computes: from a tile of
/// logits, in whole rows, it computes each row's loss and the logits' gradient. A row's target is sparse: `places`
/// columns t(r, j) with weights w(r, j), where a negative column means no target.
///   loss(r) = (sum over j of w(r, j)) log(sum over v of exp(logits(r, v))) - sum over j of w(r, j) logits(r, t(r, j))
///   gradient(r, v) = (sum over j of w(r, j)) exp(logits(r, v)) / (sum of the row's) - sum of w(r, j) with t(r, j) = v
/// A row without a target is ignored: loss 0 and gradient 0 for any logits. A NaN makes its row's results NaN. Results
/// do not depend on the number of threads and are the same in every run.
namespace tessera::kernels {

/// All arrays are contiguous.
struct CrossEntropyTile {
  std::int64_t rows = 0;                  ///< may be 0
  std::int64_t columns = 0;               ///< V, at least 1
  const float* logits = nullptr;          ///< [rows, V]
  const std::int64_t* targets = nullptr;  ///< [rows, places], below V, equal ones adjacent; the caller checks this
  float* losses = nullptr;                ///< out [rows]
  void* gradient = nullptr;               ///< out [rows, V]; null: not wanted; in float32 it may be `logits`
  DataType type = DataType::kFloat32;     ///< the gradient's type
  std::int64_t places = 1;                ///< at least 1
  const float* weights = nullptr;         ///< [rows, places]; null: all 1
};

/// Returns a failure with one line that names the first bad argument.
Status check(const CrossEntropyTile& arguments);

/// Supports only a float32 gradient.
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
