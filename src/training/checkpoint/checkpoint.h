#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/optim/grad_scaler.h"
#include <tessera/data/loading/loader.h>
#include <tessera/models/adaptation.h>
#include <tessera/models/model_file.h>
#include <tessera/optim/optimizer.h>

namespace tessera {

/// The progress of a run. The randomness of a step depends only on (seed, step), so there is no generator state to save.
struct RunState {
  std::int64_t step = 0;            // number of updates made
  DataPosition data;                // position of the next batch; with several ranks, the position of the rank that is furthest ahead
  std::vector<DataPosition> ranks;  // the position of each rank; empty for a single rank
  std::int64_t samples = 0;         // number of samples seen
  double seconds = 0;               // training time over all sessions of the run
  std::int64_t skipped = 0;         // number of steps that skipped their update because a loss or gradient was not finite
  GradScaler::State loss_scale;
  std::string id;      // drawn at step 0; log services use it to continue the curves of a resumed run. Empty in older checkpoints
  std::string folder;  // absolute path of the run's folder
};

/// Everything needed to resume a run.
struct Checkpoint {
  ModelFile model;  // weights (including adapters), tokenizer and preprocessing; `extra` holds the resolved configuration
  std::vector<WeightUpdate> updates;            // how the adapters change the weights
  std::map<std::string, at::Tensor> optimizer;  // Optimizer::state(); only `step` if the moments are in parts
  std::vector<StatePart> parts;                 // of a checkpoint that was read: the moments, if each rank has saved its own
  std::map<std::string, at::Tensor> ema;        // Ema::averages(); empty if there are none
  std::map<std::string, at::Tensor> teacher;    // the teacher's averages; empty if there is no teacher
  RunState state;
  std::string config;  // the resolved configuration, as YAML
  std::string data;    // fingerprints of the training data (data_fingerprint.h), as JSON; empty if unknown
  std::string tuning;  // digest of the tuning table (src/ops/tuning.h); empty without a GPU, and in older checkpoints
};

/// Returns what `rank` of `ranks` writes of a checkpoint, apart from its part of a sharded optimizer state. All ranks have the same
/// averages: rank 1 writes ema, rank 2 teacher (modulo `ranks`), and rank 0 everything else. Rank 0 writes all of a checkpoint with
/// adapters, because adapters.safetensors holds those of the averages, too.
Checkpoint share_of(Checkpoint whole, int rank, int ranks);

/// The checkpoints of one run: FOLDER/step_0000100/{model.safetensors, state.safetensors, manifest.json}, plus ema.safetensors if weights
/// are averaged and teacher.safetensors if there is a teacher. If the optimizer's state is sharded, state.safetensors has no moments, and
/// each rank writes its own into optimizer_RANK_of_RANKS.safetensors, whose metadata says where they lie in the whole tensors. The model,
/// ema and teacher files are model files, with adapters merged into the weights. With adapters there is also adapters.safetensors, which a
/// resumed run needs to undo the merge. It holds the unmerged weights and the adapters of the model, of the averages (under names with the
/// prefix `ema.`) and of the teacher (`teacher.`). Its metadata holds Checkpoint::updates. The text file FOLDER/latest names the newest
/// checkpoint; FOLDER/best (BestFile) names the best one, which is never deleted. A checkpoint is written into a temporary folder, fsynced
/// and renamed, so a folder with a final name is complete. The manifest holds sizes and checksums, so that later damage to a file is
/// detected.
class CheckpointFolder {
 public:
  /// keep_last is the number of checkpoints that are kept. In addition, checkpoints of steps that are divisible by keep_every are never
  /// deleted; keep_every = 0 turns this off.
  CheckpointFolder(std::string folder, std::int64_t keep_last, std::int64_t keep_every = 0);

  /// Writes a checkpoint, updates `latest`, deletes the oldest checkpoints beyond keep_last, and returns the new folder. Checkpoints of
  /// later steps count as the oldest: the run resumed from an earlier step, so they are damaged or out of date. If writing fails (for
  /// example, because the disk is full) and the oldest checkpoint is due for deletion anyway, deletes that checkpoint with a warning and
  /// tries again. Throws UserError if writing fails; earlier checkpoints remain. Calls `before_deleting` before it deletes a checkpoint.
  /// If other ranks write parts of the checkpoint, the folder must have been prepared, and `others` must wait until all ranks are done
  /// and throw UserError if one has failed. The failed save is then not tried again.
  std::string save(const Checkpoint& checkpoint, const std::function<void()>& before_deleting = [] {},
                   const std::function<void()>& others = {});

  /// Makes the temporary folder of a checkpoint. Throws UserError.
  void prepare(std::int64_t step) const;
  /// Writes a rank's part of the optimizer's state, if the state is sharded, and the averages in `share` into the prepared folder. Throws
  /// UserError.
  void write_part(std::int64_t step, const std::optional<StatePart>& part, const Checkpoint& share, int rank, int ranks) const;

  /// Returns the step folders, oldest first, including damaged ones but not half-written ones.
  std::vector<std::string> list() const;
  /// Deletes the temporary folders that an interrupted save left behind.
  void remove_leftovers() const;

 private:
  std::string write(const Checkpoint& checkpoint, const std::function<void()>& others) const;
  std::string aside(std::int64_t step) const;
  /// Deletes all but the last `keep` checkpoints, and at least one, of passing_list(step).
  void prune(std::int64_t keep, std::int64_t step) const;
  /// Returns the checkpoints of list() that may be deleted once they are old, in the order of their deletion while the run is at `step`.
  std::vector<std::string> passing_list(std::int64_t step) const;

  std::string folder_;
  std::int64_t keep_last_, keep_every_;
};

/// Copies a checkpoint into another folder of checkpoints, through a temporary folder. Throws UserError if that fails.
void copy_checkpoint(const std::string& checkpoint, const std::string& folder);

/// Reads one step folder. Throws UserError naming the file that is missing, truncated or damaged. The elements of parts are read only when they
/// are needed. Without `verify`, does not compare the files with the manifest, because another rank has done so.
Checkpoint load_checkpoint(const std::string& folder, bool verify = true);

/// Returns the optimizer's whole state, as Optimizer::state() without shards: joins the parts of a checkpoint that was read.
std::map<std::string, at::Tensor> whole_state(const Checkpoint& checkpoint);

/// Returns the newest intact checkpoint in a folder of checkpoints, together with the path of its own folder; nothing if there are
/// no checkpoints. Skips damaged checkpoints with a warning. Throws UserError if there are checkpoints but all are damaged.
std::optional<std::pair<std::string, Checkpoint>> load_newest_checkpoint(const CheckpointFolder& folder);

/// The file of a step folder that lists its other files; it is written last.
inline constexpr const char* kManifest = "manifest.json";

/// Throws UserError if the files of a step folder are not those of its manifest, whose sizes and checksums it compares.
void check_manifest(const std::string& folder);

/// Returns those of the checkpoints (names or paths of step folders, oldest first) that may be deleted once they are old, in the order of
/// their deletion while the run is at `step`. `best` is not among them.
std::vector<std::string> passing_checkpoints(std::vector<std::string> checkpoints, std::int64_t keep_every, const std::string& best,
                                             std::int64_t step);

/// Returns whether a name is that of a step folder.
bool is_step_folder(const std::string& name);
/// Returns "step_0000100" for step 100.
std::string step_folder_name(std::int64_t step);
/// Returns the step in a step folder's name: 100 for RUN/checkpoints/step_0000100.
std::int64_t step_of(const std::string& step_folder);

}  // namespace tessera
