#include <ATen/ATen.h>

#include "src/training/checkpoint/shell_command.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/training/checkpoint/checkpoint_writer.h>

namespace tessera {
namespace {

void copy_tensors(std::map<std::string, at::Tensor>& tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

// Runs work that is due after a checkpoint was written. Logs a warning if the work fails.
void attempt(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    log::warning(error.what(), "; the checkpoint itself is written, and training continues");
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name)
    : folder_(std::move(folder)), settings_(std::move(settings)), run_name_(std::move(run_name)) {}

void CheckpointWriter::begin(Checkpoint checkpoint, bool stands_still) {
  const bool background = settings_.background && !stands_still;
  if (background)
    for (auto* tensors : {&checkpoint.model.weights, &checkpoint.optimizer, &checkpoint.ema, &checkpoint.teacher})
      copy_tensors(*tensors);
  written_ = std::async(background ? std::launch::async : std::launch::deferred,
                        [this, whole = std::move(checkpoint)] { return write(whole); });
}

std::string CheckpointWriter::collect() {
  return written_.get();
}

std::string CheckpointWriter::write(const Checkpoint& checkpoint) {
  std::string target = folder_.save(checkpoint);
  if (settings_.copy_to) attempt([&] { copy_checkpoint(target, *settings_.copy_to); });
  if (settings_.command) attempt([&] {
      run_shell_command("checkpoint.command", *settings_.command, {target, run_name_}, "for " + target);
    });
  return target;
}

}  // namespace tessera
