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

/// Where a run stands. Randomness of a step follows from (seed, step), so there is no generator to save.
struct RunState {
  std::int64_t step = 0;            // updates done
  DataPosition data;                // of the next batch; over ranks, the furthest
  std::vector<DataPosition> ranks;  // of each, when there are several
  std::int64_t samples = 0;         // seen
  double seconds = 0;               // trained, over all sessions of the run
  std::int64_t skipped = 0;         // steps without update, for a loss or gradient was not finite
  GradScaler::State loss_scale;
};

/// Everything that a resume needs.
struct Checkpoint {
  ModelFile model;  // weights with adapters, tokenizer, preprocessing; `extra` holds the resolved configuration
  std::vector<WeightUpdate> updates;            // what the adapters among them do
  std::map<std::string, at::Tensor> optimizer;  // Optimizer::state()
  std::map<std::string, at::Tensor> ema;        // Ema::averages(); empty: none
  std::map<std::string, at::Tensor> teacher;    // likewise the teacher's
  RunState state;
  std::string config;  // resolved YAML
  std::string data;    // fingerprints of the training data (data_fingerprint.h), as JSON; empty: not known
};

/// The checkpoints of one run: FOLDER/step_0000100/{model.safetensors, state.safetensors, manifest.json}, with
/// ema.safetensors where weights are averaged and teacher.safetensors where there is a teacher. These three are model files,
/// with adapters merged into the weights; adapters.safetensors then holds what that changes, for the run to go on with: the
/// weights before and the adapters, the averages' and the teacher's with `ema.` and `teacher.` before their names, and in the
/// metadata the updates. FOLDER/latest, a text
/// file that names the newest; FOLDER/best (BestFile) names one that is never deleted. A checkpoint is written into a folder aside, fsynced and renamed, so under its name it is
/// whole; the manifest holds sizes and checksums, so a file damaged later is noticed.
class CheckpointFolder {
 public:
  /// keep_last: how many stay; besides, those of steps that keep_every divides (0: none) are never deleted.
  CheckpointFolder(std::string folder, std::int64_t keep_last, std::int64_t keep_every = 0);

  /// Writes, points `latest` at it, deletes the oldest beyond keep_last, and returns the new folder. When the disk is
  /// full and the oldest checkpoint would be deleted anyway, that is done first and said aloud. Throws UserError; all
  /// earlier checkpoints are then still there.
  std::string save(const Checkpoint& checkpoint);

  /// Step folders, oldest first (whole or damaged; not those left half-written).
  std::vector<std::string> list() const;
  /// Deletes what an interrupted save left behind.
  void remove_leftovers() const;

 private:
  std::string write(const Checkpoint& checkpoint) const;
  void prune(std::int64_t keep) const;
  /// list() without those that stay for good.
  std::vector<std::string> passing_list() const;

  std::string folder_;
  std::int64_t keep_last_, keep_every_;
};

/// Copies a checkpoint into another folder of checkpoints, aside first. Throws UserError.
void copy_checkpoint(const std::string& checkpoint, const std::string& folder);

/// Reads one step folder. Throws UserError naming the file that is missing, cut or damaged.
Checkpoint load_checkpoint(const std::string& folder);

/// The newest whole checkpoint of a folder of checkpoints, with its folder; a damaged one is passed over with a warning
/// that names it. Nothing when there is none. Throws UserError when there are some but all are damaged.
std::optional<std::pair<std::string, Checkpoint>> load_newest_checkpoint(const CheckpointFolder& folder);

/// "step_0000100".
std::string step_folder_name(std::int64_t step);
/// 100, of RUN/checkpoints/step_0000100.
std::int64_t step_of(const std::string& step_folder);

}  // namespace tessera
