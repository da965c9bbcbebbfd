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
    "how ranks exchange tensors; auto: nccl on GPUs, gloo on CPUs. A single process uses a backend only if one is "
    "named here, for measurements",
    config::one_of({"auto", "gloo", "nccl"}));
  v("timeout", s.timeout, "how many seconds a rank waits for the other ranks before it gives up", config::above(0));
  v("bucket_mb", s.bucket_mb, "size of the buckets, in MiB, in which gradients are reduced during the backward pass",
    config::above(0));
}

enum class Reduction { sum, min, max };

/// The processes that train together. Copies of a group share one connection. A default-constructed group has only this process, and its
/// operations do nothing or return their argument. A group of one rank may have a connection too; its operations then go through the
/// backend, as with many ranks. Every rank must call the same operations in the same order, with tensors of equal shape and type. CPU
/// tensors travel over Gloo, CUDA tensors over NCCL (or over Gloo with backend gloo). Operations throw c10::Error when a rank is lost or
/// the timeout expires. When the last copy of a group is destroyed, it waits up to half a minute for the other ranks and shuts the backends
/// down, unless an exception is being handled.
///
/// Scale of losses and gradients, for everything built on this class: a rank's loss covers its own pairs (against the whole batch), and the
/// mean of the ranks' losses is the loss of the global batch. Collectives with gradient (collectives.h) give each rank's features the
/// gradient of the SUM of all ranks' losses. GradientReducer divides by the number of ranks, once, so the optimizer receives the gradient
/// of the global batch's loss.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  /// Connects to the other ranks; a single rank with backend auto gets no connection. `device` is the device that this rank computes on; a
  /// GPU must have an index. Throws UserError when the other ranks do not connect within the timeout, when the backend is not built in, or
  /// when the backend is nccl and `device` is the CPU or a GPU that another rank also uses.
  static ProcessGroup connect(const LaunchEnvironment& environment, const DistributedSettings& settings,
                              const at::Device& device);

  int rank() const;
  int size() const;
  int local_rank() const;
  /// Returns true if there is no connection. With a connection, returns false even if there is only one rank.
  bool alone() const { return connection_ == nullptr; }
  bool first() const { return rank() == 0; }
  /// The backend that transfers the tensors of losses and gradients: "none", "gloo" or "nccl".
  std::string backend() const;

  /// Reduces the tensor in place on every rank. `seconds` is the timeout of this call; 0 means the group's timeout.
  void all_reduce(at::Tensor& tensor, Reduction reduction = Reduction::sum, double seconds = 0) const;
  void broadcast(at::Tensor& tensor, int root = 0) const;
  /// Gathers [n, ...] from each rank into [size * n, ...], in rank order.
  at::Tensor all_gather(const at::Tensor& own) const;
  /// Sums [size * n, ...] over all ranks and returns this rank's part of the sum, [n, ...].
  at::Tensor reduce_scatter(const at::Tensor& all) const;
  /// Sends part k of `parts` [size * n, ...] to rank k. Returns the parts that all ranks sent to this one, in rank order.
  at::Tensor all_to_all(const at::Tensor& parts) const;
  /// Returns the root's text on every rank.
  std::string broadcast_text(const std::string& text, int root = 0) const;

  /// A pending transfer around the ring: `send` goes to rank + 1 while rank - 1 fills `receive`. Do not read or write these tensors before
  /// wait(). The tensors must be contiguous.
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
  /// The connection, for code that uses c10d directly; null if alone().
  const std::shared_ptr<const Connection>& connection() const { return connection_; }

 private:
  std::shared_ptr<const Connection> connection_;
};

}  // namespace tessera
