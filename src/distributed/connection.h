#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/distributed/process_group.h>

namespace tessera {

struct ProcessGroup::Connection {
  LaunchEnvironment environment;
  std::string backend;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;

  static ProcessGroup as_group(std::shared_ptr<const Connection> connection);
};

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// Null when Gloo or NCCL is not built in.
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout);
BackendPointer make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout);

}  // namespace tessera
