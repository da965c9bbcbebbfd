#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// What an evaluation measured, by "task.metric".
using MeasuredMetrics = std::vector<std::pair<std::string, double>>;

/// The checkpoint that is best by checkpoint.keep_best.
struct BestCheckpoint {
  std::int64_t step = 0;
  double value = 0;
};

/// The file `best` in a folder of checkpoints: the best one's name, then why ("step_0000100 retrieval.text_to_image_recall@1
/// max 0.51").
class BestFile {
 public:
  /// folder: of the checkpoints.
  BestFile(const std::string& folder, const KeepBestSettings& settings);

  /// What the file says; nothing where there is none, where it is of another metric or mode, or its checkpoint is gone.
  std::optional<BestCheckpoint> read() const;
  /// Throws UserError.
  void write(const BestCheckpoint& best) const;

 private:
  std::string folder_, rule_;
};

/// The folder of the best checkpoint that the file `best` in a folder of checkpoints names, by whatever rule; empty: none.
std::string best_checkpoint_in(const std::string& folder);

/// Whether the metric's greatest value is the best: as `mode` says, or by its name (a loss should be small).
bool greater_is_better(const KeepBestSettings& settings);

/// The value by which an evaluation is judged; nothing when it is NaN or infinite. Throws UserError, with the names that
/// there are, if it is not among those measured.
std::optional<double> judged_value(const KeepBestSettings& settings, const MeasuredMetrics& measured);

}  // namespace tessera
