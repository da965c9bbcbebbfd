#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// How gradients are compressed for transfer between ranks. With bf16, gradients and their partial sums are rounded to bfloat16. The error
/// of each element of the mean over W ranks is then at most W / 256 times the element's mean magnitude over the ranks.
enum class Compression { none, bf16 };

/// Calls a function right after a backward pass has added to the gradient of a parameter, while an object of this class exists. Of several
/// objects for the same parameter, only the last one is in effect; they must be destroyed in the reverse order.
class GradientWatch {
 public:
  /// Receives the index of the parameter, and its gradient, which the function may replace.
  using Visit = std::function<void(std::size_t index, at::Tensor& gradient)>;
  GradientWatch(const std::vector<at::Tensor>& parameters, const Visit& visit);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Averages gradients over ranks while the backward pass still runs, with c10d::Reducer: it reduces buckets of gradients in the order in
/// which they become ready. The gradients are views of the buckets, so they are in memory only once. In a process without other ranks this
/// is a plain backward pass. A parameter that no rank used keeps an undefined gradient.
class GradientReducer {
 public:
  /// Every rank must pass the same parameters in the same order. Throws c10::Error if shapes differ between ranks. If `all_used` is set,
  /// every backward pass must use all parameters (else the next one throws c10::Error), and no pass reads values back from the device.
  GradientReducer(std::vector<at::Tensor> parameters, const ProcessGroup& group, double bucket_mb,
                  Compression compression = Compression::none, bool all_used = false);
  ~GradientReducer();

  /// Differentiates `loss` and accumulates the gradients. If `reduce` is true, then averages the accumulated gradients, including those of
  /// earlier calls, over the ranks. Pass true only for the last micro-batch of a step. Every rank must pass the same `reduce`.
  void backward(const at::Tensor& loss, bool reduce);
  /// Does the same as the other backward() for several outputs, given the loss's gradient with respect to each of them.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool reduce);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Copies rank 0's values into the tensors of all other ranks.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group);

}  // namespace tessera
