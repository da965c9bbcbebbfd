#pragma once

#include <future>
#include <string>

#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Writes checkpoints, one at a time, while training continues. Copies the tensors. A thread then writes these copies as a checkpoint,
/// copies the checkpoint to checkpoint.copy_to and runs checkpoint.command. If that copy or the command fails, logs a warning.
class CheckpointWriter {
 public:
  /// `run_name` is passed to checkpoint.command.
  CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name = "run");

  /// Starts writing a checkpoint. collect() must have been called for the previous checkpoint. If `stands_still` is true, the caller
  /// promises not to change the tensors before collect(). If `stands_still` is false and checkpoint.background is set, copies the tensors,
  /// and a thread writes the copies. In all other cases, collect() writes the tensors without a copy.
  void begin(Checkpoint checkpoint, bool stands_still = false);
  /// Returns true if a started checkpoint has not been collected yet.
  bool pending() const { return written_.valid(); }
  /// Waits for the pending checkpoint write and returns its folder. Throws UserError if the write failed.
  std::string collect();

 private:
  std::string write(const Checkpoint& checkpoint);

  CheckpointFolder folder_;
  CheckpointSettings settings_;
  std::string run_name_;
  std::future<std::string> written_;  // declared last, because its destructor waits for the thread
};

}  // namespace tessera
