#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

using Tensors = std::map<std::string, at::Tensor>;

/// Runs `body` in `count` processes of their own that share a group, and returns what each of them gave, by rank.
/// backend: as in DistributedSettings; with auto one rank is alone, with gloo its group has a connection. A rank that
/// throws fails the test with its message; the result is then empty. The calling process must not have used
/// threads of LibTorch before (a fork loses them): reference values come from run_ranks(1, ...).
std::vector<Tensors> run_ranks(int count, const std::function<Tensors(const ProcessGroup&)>& body,
                               const std::string& backend = "auto");

}  // namespace tessera
