#pragma once

#include <torch/nn/module.h>

namespace tessera {

/// While it exists, batch_norm() in this thread takes its statistics in training only over the rows that are not missing in the batch and
/// not padding.
class RealRows {
 public:
  /// `mask`: bool [B], or [B, N] if each row of the batch is a sequence. If it is undefined, all rows count.
  explicit RealRows(at::Tensor mask);
  ~RealRows();
  RealRows(const RealRows&) = delete;
  RealRows& operator=(const RealRows&) = delete;
  /// Returns the mask of the innermost RealRows, or an undefined tensor if there is none.
  static at::Tensor now();

 private:
  at::Tensor mask_;
  RealRows* outer_;
};

/// Whether a row's output depends on the other rows of the batch, because the module contains batch norms in training.
bool mixes_rows(const torch::nn::Module& module);

}  // namespace tessera
