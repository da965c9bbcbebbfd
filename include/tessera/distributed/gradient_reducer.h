#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// How gradients travel between ranks. bf16: they and their partial sums are rounded to bfloat16; the mean over W ranks
/// is then off by at most W / 256 of the gradients' mean magnitude, element by element.
enum class Compression { none, bf16 };

/// Averages gradients over ranks while the backward pass still runs (c10d::Reducer: buckets in the order in which
/// gradients become ready). In a process without other ranks it is a plain backward pass. A parameter that no rank used
/// keeps an undefined gradient.
class GradientReducer {
 public:
  /// parameters: the same on every rank, in the same order. Throws c10::Error if their shapes differ between ranks.
  GradientReducer(std::vector<at::Tensor> parameters, const ProcessGroup& group, double bucket_mb,
                  Compression compression = Compression::none);
  ~GradientReducer();

  /// Differentiates `loss`. reduce: average the gradients, including what earlier calls have accumulated in them, over
  /// ranks; false on all but the last micro-batch of a step. Every rank must pass the same value.
  void backward(const at::Tensor& loss, bool reduce);
  /// Differentiates several outputs, given the gradient of each.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool reduce);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Copies rank 0's values into the tensors of all other ranks.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group);

}  // namespace tessera
