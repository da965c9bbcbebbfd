#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/models/adaptation.h>
#include <tessera/models/model_file.h>
#include <tessera/optim/grad_scaler.h>

namespace tessera {

/// The progress of a run. The randomness of a step depends only on (seed, step), so there is no generator state to save.
struct RunState {
  std::int64_t step = 0;            // updates done
  DataPosition data;                // position of the next batch; with several ranks, the furthest one
  std::vector<DataPosition> ranks;  // the position of each rank if there are several
  std::int64_t samples = 0;         // samples seen
  double seconds = 0;               // training time over all sessions of the run
  std::int64_t skipped = 0;         // steps without update because a loss or gradient was not finite
  GradScaler::State loss_scale;
};

/// Everything needed to resume a run.
struct Checkpoint {
  ModelFile model;  // weights with adapters, tokenizer, preprocessing; `extra` holds the resolved configuration
  std::vector<WeightUpdate> updates;            // how the adapters change the weights
  std::map<std::string, at::Tensor> optimizer;  // Optimizer::state()
  std::map<std::string, at::Tensor> ema;        // Ema::averages(); empty: none
  std::map<std::string, at::Tensor> teacher;    // the teacher's averages; empty: none
  RunState state;
  std::string config;  // resolved YAML
  std::string data;    // fingerprints of the training data (data_fingerprint.h), as JSON; empty: unknown
};

/// The checkpoints of one run: FOLDER/step_0000100/{model.safetensors, state.safetensors, manifest.json}, plus ema.safetensors if
/// weights are averaged and teacher.safetensors if there is a teacher. The model, ema and teacher files are model files with
/// adapters merged into the weights. With adapters, adapters.safetensors also holds what a resumed run needs to undo the merge: the
/// unmerged weights and the adapters (those of the averages and the teacher with the prefixes `ema.` and `teacher.`), and the
/// updates in its metadata. The text file FOLDER/latest names the newest checkpoint; FOLDER/best (BestFile) names one that is never
/// deleted. A checkpoint is written into a temporary folder, fsynced and renamed, so it is complete under its final name. The
/// manifest holds sizes and checksums, so that later damage to a file is detected.
class CheckpointFolder {
 public:
  /// keep_last: how many are kept. In addition, checkpoints of steps divisible by keep_every (0: none) are never deleted.
  CheckpointFolder(std::string folder, std::int64_t keep_last, std::int64_t keep_every = 0);

  /// Writes a checkpoint, updates `latest`, deletes the oldest checkpoints beyond keep_last, and returns the new folder. If writing
  /// fails (say, the disk is full) and the oldest checkpoint would be deleted anyway, deletes it with a warning and tries again.
  /// Throws UserError if writing fails; earlier checkpoints remain.
  std::string save(const Checkpoint& checkpoint);

  /// Returns the step folders, oldest first, including damaged ones but not half-written ones.
  std::vector<std::string> list() const;
  /// Deletes what an interrupted save left behind.
  void remove_leftovers() const;

 private:
  std::string write(const Checkpoint& checkpoint) const;
  void prune(std::int64_t keep) const;
  /// Returns list() without the checkpoints that are never deleted.
  std::vector<std::string> passing_list() const;

  std::string folder_;
  std::int64_t keep_last_, keep_every_;
};

/// Copies a checkpoint into another folder of checkpoints, through a temporary folder. Throws UserError.
void copy_checkpoint(const std::string& checkpoint, const std::string& folder);

/// Reads one step folder. Throws UserError naming the file that is missing, truncated or damaged.
Checkpoint load_checkpoint(const std::string& folder);

/// Returns the newest intact checkpoint in a folder of checkpoints, with its own folder; nothing if there are no checkpoints. Skips
/// damaged checkpoints with a warning. Throws UserError if there are checkpoints but all are damaged.
std::optional<std::pair<std::string, Checkpoint>> load_newest_checkpoint(const CheckpointFolder& folder);

/// Returns "step_0000100" for step 100.
std::string step_folder_name(std::int64_t step);
/// Returns 100 for RUN/checkpoints/step_0000100.
std::int64_t step_of(const std::string& step_folder);

}  // namespace tessera
