#include "src/training/checkpoint/checkpoint_room.h"

#include <algorithm>
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "src/training/checkpoint/checkpoint.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {

double bytes_of(const std::map<std::string, at::Tensor>& tensors) {
  double bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

}  // namespace

std::optional<std::string> lack_of_room(const TrainingRun& run, const Config& config, int ranks) {
  const int parts = config.distributed.shard_optimizer ? ranks : 1;
  const double one = bytes_of(weights_of(*run.model, *run.objective)) + parts * bytes_of(run.optimizer->state()) +
                     (run.ema ? bytes_of(run.ema->averages()) : 0) + (run.teacher ? bytes_of(run.teacher->ema.averages()) : 0);
  const fs::path folder = fs::absolute(config.run.path()).lexically_normal();
  fs::path existing = folder / "checkpoints";  // which may be a link to another disk
  std::error_code failed;
  while (!fs::exists(existing, failed) && existing.has_relative_path()) existing = existing.parent_path();
  const fs::space_info disk = fs::space(existing, failed);
  if (failed || disk.capacity == 0) return std::nullopt;
  const CheckpointSettings& s = config.checkpoint;
  const std::int64_t saves = s.every_steps > 0 ? (config.training.steps + s.every_steps - 1) / s.every_steps : 1;
  const std::int64_t there = std::ssize(CheckpointFolder((folder / "checkpoints").string(), 1).list());
  // If the disk is full, saving deletes the oldest checkpoint, but only if there are two.
  const std::int64_t lasting = s.keep_every > 0 ? config.training.steps / s.keep_every : 0;
  const std::int64_t kept = std::min(saves, std::max<std::int64_t>(2, s.keep_last) + lasting);
  const double missing = static_cast<double>(std::max<std::int64_t>(there < 2 ? 1 : 0, kept - there));
  const double free = static_cast<double>(disk.available);
  if (one * missing <= free) return std::nullopt;
  return concat(folder.string(), ": has ", format_bytes(free), " of free space, but a checkpoint takes ", format_bytes(one),
                one > free ? std::string(": the run could save nothing")
                           : concat(", and the run keeps up to ", kept, " (checkpoint.keep_last ", s.keep_last, ")"),
                ": make room, or choose another run.folder");
}

}  // namespace tessera
