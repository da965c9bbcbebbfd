#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// How gradients travel between ranks. bf16: rounded to bfloat16, as are their sums from rank to rank; the mean over W
/// ranks is then off by no more than W / 256 of the gradients' mean magnitude, element by element.
enum class Compression { none, bf16 };

/// Averages gradients over ranks while the backward pass still runs (c10d::Reducer: buckets in the order in which
/// gradients become ready). Alone it is a plain backward pass. A parameter that no rank used keeps an undefined
/// gradient.
class GradientReducer {
 public:
  /// parameters: the same on every rank, in the same order. Throws c10::Error if their shapes differ between ranks.
  GradientReducer(std::vector<at::Tensor> parameters, const ProcessGroup& group, double bucket_mb,
                  Compression compression = Compression::none);
  ~GradientReducer();

  /// Differentiates `loss`. reduce: the gradients, with all that earlier calls have accumulated in them, are averaged
  /// over ranks; false on all but the last micro-batch of a step. Every rank must pass the same.
  void backward(const at::Tensor& loss, bool reduce);
  /// The same from gradients of several outputs.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool reduce);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Copies rank 0's values into the tensors of all other ranks.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group);

}  // namespace tessera
