#pragma once

#include <atomic>
#include <memory>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/distributed/process_group.h>

namespace tessera {

struct ProcessGroup::Connection : std::enable_shared_from_this<ProcessGroup::Connection> {
  Connection() = default;
  /// Shuts the backends down after the device has finished its work and all ranks have arrived here, unless the group is borrowed.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  LaunchEnvironment environment;
  at::Device device = at::kCPU;
  std::string backend;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  bool borrowed = false;  // whether `group` belongs to other code, such as torch.distributed
  mutable std::atomic<double> seconds_waited = 0;

  /// Waits for an operation, and adds the time to seconds_waited.
  void finish(c10d::Work& work) const;
  /// Starts ProcessGroup::all_reduce(). The tensor must not be used before the transfer's wait().
  Transfer start_all_reduce(at::Tensor& tensor, Reduction reduction, double seconds) const;
  /// Starts ProcessGroup::reduce_scatter() of `all` [size * n] into `own` [n]. Neither may be used before the transfer's wait().
  Transfer start_reduce_scatter(at::Tensor& own, at::Tensor& all) const;
  /// Starts a sum over the ranks into the root's tensor; on other ranks the tensor's content is lost.
  Transfer start_reduce(at::Tensor& tensor, int root) const;

  static ProcessGroup as_group(std::shared_ptr<const Connection> connection);

 private:
  Transfer started(c10::intrusive_ptr<c10d::Work> work) const;
};

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// Returns the store's part for this attempt, whose requests are counted. The keys of an earlier attempt, such as the ranks' addresses, are
/// no longer valid.
c10::intrusive_ptr<c10d::Store> store_of_attempt(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment);

/// Returns how many requests this process has sent to the ranks' store so far, through all connections of store_of_attempt().
std::int64_t store_requests();

/// These functions create the backends of Gloo and NCCL. They return null if the build does not contain the backend.
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout);
BackendPointer make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         const at::Device& device, std::chrono::milliseconds timeout);

/// Returns, in numeric form, the address under which `host` and others on the same network reach this machine. It is this machine's address
/// on the route to `host`. Returns an empty string if the host's name is unknown or there is no route to it.
std::string address_towards(const std::string& host);

/// Returns the group that torch.distributed registered under this name (torch.distributed.ProcessGroup.group_name in Python). Throws
/// c10::Error if there is none.
ProcessGroup torch_group(const std::string& name);

/// Records that this rank uses the GPU with this identity. Throws UserError if another rank already uses it, because
/// NCCL cannot transfer between two ranks on one GPU.
void claim_gpu(c10d::Store& store, const std::string& identity, const LaunchEnvironment& environment);

}  // namespace tessera
