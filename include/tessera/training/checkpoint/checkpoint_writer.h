#pragma once

#include <future>
#include <string>

#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Writes checkpoints while training goes on: takes a copy of the tensors, and a thread writes it, copies it to the second
/// folder and runs the user's command (a failure of these two is a warning). One at a time.
class CheckpointWriter {
 public:
  /// run_name: for the user's command.
  CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name = "run");

  /// Begins. The one before must have been collected. stands_still: nothing changes the tensors before collect(), which
  /// then writes them as they are; otherwise they are copied first, if the settings say background.
  void begin(Checkpoint checkpoint, bool stands_still = false);
  /// Whether something was begun that is not collected yet.
  bool pending() const { return written_.valid(); }
  /// Waits for what was begun and returns its folder. Throws its UserError.
  std::string collect();

 private:
  std::string write(const Checkpoint& checkpoint);

  CheckpointFolder folder_;
  CheckpointSettings settings_;
  std::string run_name_;
  std::future<std::string> written_;  // last: its destructor waits for the thread
};

}  // namespace tessera
