#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// While a BlockInputs object exists, each transformer block that runs in its thread detaches the block's input from earlier operations and
/// records the input in the object. The gradient of an output with respect to the last block's input can then be computed. That input is
/// the feature map of Grad-CAM if the read-out uses only the class token, because then no gradient reaches the patches that the last block
/// returns.
class BlockInputs {
 public:
  BlockInputs();
  ~BlockInputs();
  BlockInputs(const BlockInputs&) = delete;
  BlockInputs& operator=(const BlockInputs&) = delete;

  /// The input [B, 1 + N, w] or [B, N, w] of the block that ran last; undefined if none has run.
  const at::Tensor& last() const { return last_; }

  /// Whether a BlockInputs exists in this thread.
  static bool recording();
  /// Returns the tensor that a block should use as its input: `input` detached and recorded or, if no BlockInputs exists, `input` itself.
  static at::Tensor seen(const at::Tensor& input);

 private:
  BlockInputs* outer_;
  at::Tensor last_;
};

}  // namespace tessera
