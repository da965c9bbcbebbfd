#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

using Tensors = std::map<std::string, at::Tensor>;

/// Runs `body` in `count` new processes that share a group. Returns their results by rank.
/// backend: as in DistributedSettings; with auto a single rank has no connection, with gloo it has one. If a rank throws, the
/// test fails with its message and the result is empty. The calling process must not have used LibTorch's threads before,
/// because a fork loses them; compute reference values with run_ranks(1, ...).
std::vector<Tensors> run_ranks(int count, const std::function<Tensors(const ProcessGroup&)>& body,
                               const std::string& backend = "auto");

}  // namespace tessera
