#include <torch/cuda.h>

#include "src/base/host.h"
#include "src/evaluation/rank_embedder.h"
#include "src/training/run/run_loss.h"
#include "tools/command_line.h"
#include "tools/evaluate_arguments.h"
#include "tools/programs.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/distributed/spawn.h>

namespace tessera::tools {
namespace {

// The longest time, in seconds, that the other ranks wait for rank 0 to compute metrics.
constexpr double kLongestMeasurement = 24 * 3600;

/// Assigns one GPU to each process of a machine, unless the user named a particular device.
std::string device_of(const std::string& device, int local_rank) {
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if ((device != "auto" && device != "cuda") || gpus == 0) return device;
  return concat("cuda:", local_rank % gpus);
}

/// Runs one of several processes. All processes embed; the first one also computes the metrics.
int run_as_rank(EvaluateOptions& options, const LaunchEnvironment& launched) {
  // Embeddings are exchanged on the CPU, even if a GPU computes them.
  const auto group = ProcessGroup::connect(launched, {.backend = "gloo", .timeout = kLongestMeasurement}, at::kCPU);
  options.device = device_of(options.device, launched.local_rank);
  if (!group.first()) {
    serve_embeddings(group, options.device);
    return 0;
  }
  const EmbeddingRanks ranks(group);
  options.ranks = &ranks;
  return evaluate(options);
}

int run(EvaluateOptions& options, int argc, char** argv) {
  const Variables variables = environment_variables();
  const bool launched = variables.contains("RANK") || variables.contains("WORLD_SIZE");
  if (options.processes > 1) {
    if (launched)
      user_error("--nproc starts processes, but a launcher has set RANK or WORLD_SIZE already: leave one out");
    return spawn_workers("evaluate", options.processes, arguments_without("--nproc", argc, argv));
  }
  const LaunchEnvironment place = launched ? launch_environment(variables) : LaunchEnvironment{};
  return place.alone() ? evaluate(options) : run_as_rank(options, place);
}

}  // namespace

int evaluate_main(int argc, char** argv) {
  EvaluateOptions options;
  options.command = shell_line({argv, argv + argc});
  if (const auto code = parse(argc, argv, options)) return *code;
  options.run_loss = checkpoint_loss;
  return run_program("evaluate", [&] { return run(options, argc, argv); });
}

}  // namespace tessera::tools
