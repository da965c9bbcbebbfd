#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>
#include <tessera/distributed/launch.h>

namespace tessera {

struct DistributedSettings {
  std::string backend = "auto";
  double timeout = 600;
  double bucket_mb = 25;
};

template <class Visitor>
void fields(Visitor& v, DistributedSettings& s) {
  v("backend", s.backend,
    "how ranks exchange tensors; auto: nccl on GPUs, gloo on CPUs. A process alone goes through one that is named "
    "here, to "
    "be measured with it",
    config::one_of({"auto", "gloo", "nccl"}));
  v("timeout", s.timeout, "seconds that a rank waits for the others before it gives up", config::above(0));
  v("bucket_mb", s.bucket_mb, "gradients are reduced in buckets of so many MiB while the backward pass goes on",
    config::above(0));
}

enum class Reduction { sum, min, max };

/// The processes that train together. Copies share one connection; a default one stands for a process alone, and all
/// its operations do nothing or give their argument back. A group of one rank may have a connection too: its operations
/// then go through the backend as those of many ranks do. Every rank must call the same operations in the same order,
/// with tensors of equal shape and type. CPU tensors travel over Gloo, CUDA tensors over NCCL (over Gloo too with
/// backend gloo). Operations throw c10::Error when a rank is lost or the time-out passes. The last copy of a group waits
/// up to half a minute for the other ranks' and shuts the backends down, unless an exception is on its way.
///
/// Scale of losses and gradients, for everything built on it: a rank's loss is over its own pairs (against the whole
/// batch), and the mean of the ranks' losses is the loss of the global batch. Collectives with gradient
/// (collectives.h) give each rank's features the gradient of the SUM of all ranks' losses. GradientReducer divides by
/// the number of ranks, once: what reaches the optimizer is the gradient of the global batch's loss.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  /// Meets the other ranks; alone with backend auto there is nothing to connect. device: the one that this rank
  /// computes on, chosen already (a GPU: with its index). Throws UserError when the ranks do not come within the
  /// time-out, when the backend is not built in or has no GPU, or when two ranks have one GPU and the backend is nccl.
  static ProcessGroup connect(const LaunchEnvironment& environment, const DistributedSettings& settings,
                              const at::Device& device);

  int rank() const;
  int size() const;
  int local_rank() const;
  /// Whether there is no connection. One rank with a connection is not alone.
  bool alone() const { return connection_ == nullptr; }
  bool first() const { return rank() == 0; }
  /// Of the tensors that losses and gradients live in: "none", "gloo" or "nccl".
  std::string backend() const;

  /// In place, on every rank. seconds: time-out of this call where it differs from the group's.
  void all_reduce(at::Tensor& tensor, Reduction reduction = Reduction::sum, double seconds = 0) const;
  void broadcast(at::Tensor& tensor, int root = 0) const;
  /// [n, ...] of each rank -> [size * n, ...], by rank.
  at::Tensor all_gather(const at::Tensor& own) const;
  /// [size * n, ...] of each rank -> [n, ...]: the sum over ranks of this rank's part.
  at::Tensor reduce_scatter(const at::Tensor& all) const;
  /// [size * n, ...]: part k goes to rank k; returns the parts that the others sent here, by rank.
  at::Tensor all_to_all(const at::Tensor& parts) const;
  /// The root's text, on every rank.
  std::string broadcast_text(const std::string& text, int root = 0) const;
  /// Waits until all ranks have come.
  void barrier() const;

  /// A transfer around the ring under way: `send` goes to rank + 1 while rank - 1 fills `receive`. Neither may be
  /// touched before wait(). The tensors must be contiguous.
  class Transfer {
   public:
    Transfer();
    Transfer(Transfer&&) noexcept;
    Transfer& operator=(Transfer&&) noexcept;
    ~Transfer();
    void wait();

   private:
    friend class ProcessGroup;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };
  Transfer pass_on(const at::Tensor& send, const at::Tensor& receive) const;

  struct Connection;
  /// For code that stands on c10d itself; null when alone.
  const std::shared_ptr<const Connection>& connection() const { return connection_; }

 private:
  std::shared_ptr<const Connection> connection_;
};

}  // namespace tessera
