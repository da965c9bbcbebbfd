#pragma once

#include <functional>
#include <future>
#include <string>

#include "src/training/checkpoint/checkpoint.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// Writes checkpoints, one at a time, while training continues. Copies the tensors. A thread then writes these copies as a checkpoint.
/// Another thread stores the written checkpoint elsewhere: it copies the checkpoint to checkpoint.copy_to and runs checkpoint.command. If
/// that copy or the command fails, logs a warning.
class CheckpointWriter {
 public:
  /// `run_name` is passed to checkpoint.command.
  CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name = "run");

  /// Starts writing a checkpoint. collect() must have been called for the previous checkpoint. If `stands_still` is true, the caller
  /// promises not to change the tensors before collect(). If `stands_still` is false and checkpoint.background is set, waits until the
  /// previous checkpoint is stored, copies the tensors, and a thread writes the copies. In all other cases, collect() writes the tensors
  /// without a copy, and then waits until all checkpoints are stored.
  void begin(Checkpoint checkpoint, bool stands_still = false);
  /// Returns true if a started checkpoint has not been collected yet.
  bool pending() const { return written_.valid(); }
  /// Waits for the pending checkpoint write and returns its folder. Throws UserError if the write failed.
  std::string collect();
  /// Runs `task` in a thread, after everything that earlier calls and written checkpoints have left to do. If the task throws,
  /// logs a warning. collect() must have been called for the pending checkpoint.
  void later(std::function<void()> task);
  /// Waits until all collected checkpoints are stored and all tasks of later() have ended.
  void finish();

 private:
  std::string write(const Checkpoint& checkpoint);

  CheckpointFolder folder_;
  CheckpointSettings settings_;
  std::string run_name_;
  // Declared last, because the futures' destructors wait for the threads. The thread of written_ uses stored_.
  std::future<void> stored_;
  std::future<std::string> written_;
};

}  // namespace tessera
