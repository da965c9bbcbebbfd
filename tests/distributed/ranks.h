#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

using Tensors = std::map<std::string, at::Tensor>;

/// Runs `body` in `count` new processes that share a process group. Returns their results by rank. If a rank fails, prints its message
/// and throws, so that the test fails. `backend` is as in DistributedSettings: with `gloo`, even a single rank opens a connection; with
/// `auto`, it does not. The calling process must not have used LibTorch's threads before, because a fork loses them; compute reference
/// values with run_ranks(1, ...).
std::vector<Tensors> run_ranks(int count, const std::function<Tensors(const ProcessGroup&)>& body,
                               const std::string& backend = "auto");

/// Returns this rank's equal share of the rows. Rank r of W has the rows r N/W to (r + 1) N/W - 1 of N.
at::Tensor part_of(const at::Tensor& rows, const ProcessGroup& group);

/// Replaces each tensor with its mean over the ranks.
void average(Tensors& tensors, const ProcessGroup& group);

/// Expects `got` to contain each tensor of `expected`, with values within 1e-9 of the expected ones.
void expect_close(const Tensors& got, const Tensors& expected);

/// Runs `body` on one rank without a connection, and then over gloo with each number of ranks in `sizes`. Compares each rank's results with
/// those of the first run.
void expect_same_as_one_rank(const std::vector<int>& sizes, const std::function<Tensors(const ProcessGroup&)>& body,
                             const std::function<void(const Tensors&, const Tensors&)>& compare = expect_close);

}  // namespace tessera
