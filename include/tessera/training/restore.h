#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/config/resume_rules.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// From what a run goes on, and what it may have otherwise than before.
struct Resume {
  Resume(std::string where = "none", std::vector<std::string> let_through = {})  // NOLINT: a place is enough
      : from(std::move(where)), allowed(std::move(let_through)) {}
  Resume(const char* where) : from(where) {}  // NOLINT

  std::string from;                  // none, auto, or a checkpoint or run folder
  std::vector<std::string> allowed;  // keys, each with all below it (stands_for)
};

/// Puts weights, optimizer, averages and this rank's data position of a checkpoint into the run, and returns the settings
/// that are other ones now. With `other_data` the data begin with the epoch after the checkpoint's. Throws UserError naming
/// the checkpoint when a setting has changed that may not (resume_changes), or the vocabulary. A configuration whose
/// training.micro_batch is `auto` takes the checkpoint's.
ResumeChanges apply_checkpoint(TrainingRun& run, Config& config, const ProcessGroup& group,
                               const Checkpoint& checkpoint, const std::string& folder,
                               const std::vector<std::string>& allowed = {}, bool other_data = false);

/// In what run.data_fingerprint differs from what the checkpoint was trained on; empty: in nothing, or the checkpoint, an
/// older one, does not know. Throws UserError naming the checkpoint when it differs and `allowed` does not have data.train.
std::string check_data(const TrainingRun& run, const Checkpoint& checkpoint, const std::string& folder,
                       const std::vector<std::string>& allowed);

}  // namespace tessera
