#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/training/checkpoint/checkpoint.h"
#include "src/training/config/resume_rules.h"
#include "src/training/run/training_run.h"

namespace tessera {

/// What a run resumes from, and which settings may differ from those in the checkpoint.
struct Resume {
  Resume(std::string where = "none", std::vector<std::string> let_through = {})  // NOLINT: `from` alone is enough
      : from(std::move(where)), allowed(std::move(let_through)) {}
  Resume(const char* where) : from(where) {}  // NOLINT

  std::string from;                  // "none", "auto", or the path of a checkpoint or run folder
  std::vector<std::string> allowed;  // patterns of keys that may differ; a pattern includes all keys below its matches (stands_for)
};

/// Restores weights, optimizer, averages and this rank's data position from a checkpoint, and returns the settings that have
/// changed. With `other_data`, training starts at the epoch after the checkpoint's epoch. Throws UserError naming the checkpoint if
/// the vocabulary or a setting that must not change has changed (resume_changes). If training.micro_batch is `auto` and the number
/// of ranks is the checkpoint's, the configuration takes the checkpoint's value.
ResumeChanges apply_checkpoint(TrainingRun& run, Config& config, const ProcessGroup& group,
                               const Checkpoint& checkpoint, const std::string& folder,
                               const std::vector<std::string>& allowed = {}, bool other_data = false);

/// Returns how the run's data (run.data_fingerprint) differ from the data that the checkpoint was trained on. The result is empty
/// if they do not differ, or if the checkpoint is so old that it has no fingerprints. Throws UserError naming the checkpoint if
/// they differ and `allowed` does not include data.train.
std::string check_data(const TrainingRun& run, const Checkpoint& checkpoint, const std::string& folder,
                       const std::vector<std::string>& allowed);

/// Returns a warning if the checkpoint's run used another tuning table than this run (run.tuning), so that its numbers differ from now on;
/// an empty text if not. Throws UserError naming the checkpoint if training.deterministic promises equal numbers.
std::string check_tuning(const TrainingRun& run, const Checkpoint& checkpoint, const std::string& folder, bool deterministic);

}  // namespace tessera
