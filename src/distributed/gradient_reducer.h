#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

struct GradientShards;

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

/// Which of the backward passes of a step this one is.
enum class BackwardPass {
  few,   // gradients of few parameters stay on this rank until a later pass averages them
  some,  // more passes follow: gradients accumulate on this rank, unless they are sharded: then they are averaged now
  last,  // averages the gradients of all passes since the last one over the ranks
};

/// Averages gradients over ranks while the backward pass still runs, in buckets of gradients in the order in which they become ready. In a
/// process without other ranks this is a plain backward pass. A parameter that no rank used keeps an undefined gradient.
class GradientReducer {
 public:
  /// Every rank must pass the same parameters in the same order. Throws c10::Error if shapes differ between ranks. If `all_used` is set,
  /// every backward pass must use all parameters (else the next one throws c10::Error), and no pass reads values back from the device.
  /// Without `shards`, c10d::Reducer averages the gradients, which are views of its buckets and so in memory only once. With `shards`, a rank
  /// receives only the averages of its own elements and adds them to shards->own; parameters keep no gradient, and `all_used` has no effect.
  GradientReducer(std::vector<at::Tensor> parameters, const ProcessGroup& group, double bucket_mb,
                  Compression compression = Compression::none, bool all_used = false, std::shared_ptr<GradientShards> shards = nullptr);
  ~GradientReducer();

  /// Differentiates `loss` and accumulates the gradients. Every rank must pass the same `pass`.
  void backward(const at::Tensor& loss, BackwardPass pass);
  /// Does the same as the other backward() for several outputs, given the loss's gradient with respect to each of them.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, BackwardPass pass);

  /// How the passes of one step reduce.
  struct Impl {
    virtual ~Impl() = default;
    virtual void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, BackwardPass pass) = 0;
  };

 private:
  std::unique_ptr<Impl> impl_;
};

/// Copies rank 0's values into the tensors of all other ranks.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group);

}  // namespace tessera
