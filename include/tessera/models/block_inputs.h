#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// While one lives, the transformer blocks that run in this thread leave what they see here, cut from what came before, so
/// that the gradient of an output with respect to the last block's input can be taken: the feature map of Grad-CAM where
/// a read-out looks at the class token alone, which the last block's own output does not reach.
class BlockInputs {
 public:
  BlockInputs();
  ~BlockInputs();
  BlockInputs(const BlockInputs&) = delete;
  BlockInputs& operator=(const BlockInputs&) = delete;

  /// [B, 1 + N, w] or [B, N, w] of the block that ran last; undefined: none has run.
  const at::Tensor& last() const { return last_; }

  /// What a block is to work on in place of its input: itself where nobody looks.
  static at::Tensor seen(const at::Tensor& input);

 private:
  BlockInputs* outer_;
  at::Tensor last_;
};

}  // namespace tessera
