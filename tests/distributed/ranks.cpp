#include "tests/distributed/ranks.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/distributed/spawn.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

// Runs a rank in the child process and exits without running the exit handlers that the child inherited.
[[noreturn]] void live(const LaunchEnvironment& environment, const std::string& backend, const std::string& file,
                       const std::function<Tensors(const ProcessGroup&)>& body) {
  int code = 0;
  const bool failed_before = testing::Test::HasFailure();  // inherited from the parent process
  try {
    at::set_num_threads(1);
    const ProcessGroup group = ProcessGroup::connect(environment, {.backend = backend, .timeout = 60}, at::kCPU);
    Tensors results;
    for (const auto& [name, tensor] : body(group)) results[name] = tensor.detach().contiguous().clone();
    io::save_safetensors(file, results, {});
    at::Tensor last = at::zeros({1});
    group.all_reduce(last);  // waits for the other ranks, which may still need this one
    if (!failed_before && testing::Test::HasFailure()) code = 1;
  } catch (const std::exception& error) {
    std::cerr << "rank " << environment.rank << " of " << environment.size << ": " << error.what() << std::endl;
    code = 1;
  }
  ::_exit(code);
}

}  // namespace

std::vector<Tensors> run_ranks(int count, const std::function<Tensors(const ProcessGroup&)>& body,
                               const std::string& backend) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera_ranks_XXXXXX").string();
  const std::string folder = ::mkdtemp(pattern.data());
  const auto file = [&](int rank) { return folder + "/" + std::to_string(rank) + ".safetensors"; };
  ReservedPort port;
  std::fflush(nullptr);  // otherwise the children would print the buffered output again
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child == 0)
      live({.rank = rank, .size = count, .local_rank = rank, .address = "127.0.0.1", .port = port.number(), .socket = port.socket()}, backend,
           file(rank), body);
    children.push_back(child);
    port.close();
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::vector<Tensors> results;
  if (good)
    for (int rank = 0; rank < count; ++rank) results.push_back(io::load_safetensors(file(rank)).tensors);
  std::filesystem::remove_all(folder);
  if (!good) throw std::runtime_error("a rank failed (see its message above)");
  return results;
}

at::Tensor part_of(const at::Tensor& rows, const ProcessGroup& group) {
  const std::int64_t own = rows.size(0) / group.size();
  return rows.narrow(0, group.rank() * own, own);
}

void average(Tensors& tensors, const ProcessGroup& group) {
  for (auto& [name, tensor] : tensors) {
    group.all_reduce(tensor);
    tensor /= group.size();
  }
}

void expect_close(const Tensors& got, const Tensors& expected) {
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::allclose(got.at(name), tensor, 1e-9, 1e-11)) << name;
}

void expect_same_as_one_rank(const std::vector<int>& sizes, const std::function<Tensors(const ProcessGroup&)>& body,
                             const std::function<void(const Tensors&, const Tensors&)>& compare) {
  const Tensors alone = run_ranks(1, body)[0];
  for (const int size : sizes) {
    SCOPED_TRACE(concat(size, " ranks"));
    for (const Tensors& rank : run_ranks(size, body, "gloo")) compare(rank, alone);
  }
}

}  // namespace tessera
