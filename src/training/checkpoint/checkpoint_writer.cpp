#include <ATen/ATen.h>

#include "src/training/checkpoint/checkpoint_writer.h"
#include "src/training/checkpoint/checkpoint_commands.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

void copy_tensors(std::map<std::string, at::Tensor>& tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name)
    : folder_(std::move(folder)), settings_(std::move(settings)), run_name_(std::move(run_name)) {}

void CheckpointWriter::begin(Checkpoint checkpoint, bool stands_still) {
  if (settings_.background && !stands_still) {
    finish();
    for (auto* tensors : {&checkpoint.model.weights, &checkpoint.optimizer, &checkpoint.ema, &checkpoint.teacher})
      copy_tensors(*tensors);
    written_ = std::async(std::launch::async, [this, whole = std::move(checkpoint)] { return write(whole); });
  } else {
    written_ = std::async(std::launch::deferred, [this, whole = std::move(checkpoint)] {
      std::string target = write(whole);
      finish();
      return target;
    });
  }
}

std::string CheckpointWriter::collect() {
  return written_.get();
}

void CheckpointWriter::later(std::function<void()> task) {
  stored_ = std::async(std::launch::async, [earlier = std::move(stored_), task = std::move(task)] {
    if (earlier.valid()) earlier.wait();
    try {
      task();
    } catch (const std::exception& error) {
      log::warning(error.what(), "; the checkpoint itself is written, and training continues");
    }
  });
}

void CheckpointWriter::finish() {
  if (stored_.valid()) stored_.wait();
}

std::string CheckpointWriter::write(const Checkpoint& checkpoint) {
  // An earlier checkpoint may still be on its way to storage. A run that is about to be killed writes this one first.
  std::string target = folder_.save(checkpoint, /*before_deleting=*/[this] { finish(); });
  if (settings_.copy_to) later([this, target] { copy_checkpoint(target, *settings_.copy_to); });
  if (settings_.command) later([this, target] {
      run_shell_command("checkpoint.command", *settings_.command, {target, run_name_}, "for " + target);
    });
  return target;
}

}  // namespace tessera
