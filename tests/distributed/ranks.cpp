#include "tests/distributed/ranks.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tessera/distributed/spawn.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

// Runs a rank in the child process, which exits without the exit handlers of the parent.
[[noreturn]] void live(const LaunchEnvironment& environment, const std::string& backend, const std::string& file,
                       const std::function<Tensors(const ProcessGroup&)>& body) {
  int code = 0;
  const bool failed_before = testing::Test::HasFailure();  // in the parent process
  try {
    at::set_num_threads(1);
    const ProcessGroup group = ProcessGroup::connect(environment, {.backend = backend, .timeout = 60}, at::kCPU);
    Tensors results;
    for (const auto& [name, tensor] : body(group)) results[name] = tensor.detach().contiguous().clone();
    io::save_safetensors(file, results, {});
    group.barrier();
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
  const int port = free_port();
  std::fflush(nullptr);  // otherwise the children would print it again
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) live({"test", rank, count, rank, "127.0.0.1", port}, backend, file(rank), body);
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  EXPECT_TRUE(good) << "a rank failed (see its message above)";
  std::vector<Tensors> results;
  if (good)
    for (int rank = 0; rank < count; ++rank) results.push_back(io::load_safetensors(file(rank)).tensors);
  std::filesystem::remove_all(folder);
  return results;
}

}  // namespace tessera
