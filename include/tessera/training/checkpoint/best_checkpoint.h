#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// An evaluation's metrics with their values, named "task.metric".
using MeasuredMetrics = std::vector<std::pair<std::string, double>>;

/// The best checkpoint according to checkpoint.keep_best.
struct BestCheckpoint {
  std::int64_t step = 0;
  double value = 0;
};

/// The file `best` in a folder of checkpoints. It holds the best checkpoint's name, then the metric, the mode and the value:
/// "step_0000100 retrieval.text_to_image_recall@1 max 0.51".
class BestFile {
 public:
  /// folder: the folder of checkpoints.
  BestFile(const std::string& folder, const KeepBestSettings& settings);

  /// Returns what the file says; nothing if there is no file, if its metric or mode differs, or if its checkpoint does not exist.
  std::optional<BestCheckpoint> read() const;
  /// Throws UserError.
  void write(const BestCheckpoint& best) const;

 private:
  std::string folder_, rule_;
};

/// Returns the folder of the checkpoint that the file `best` in a folder of checkpoints names, by any metric; empty: none.
std::string best_checkpoint_in(const std::string& folder);

/// Returns true if greater values of the metric are better: according to `mode`, or else by its name (a loss should be small).
bool greater_is_better(const KeepBestSettings& settings);

/// Returns the value of the metric in `settings`; nothing if it is NaN or infinite. Throws UserError listing the measured metrics
/// if it is not among them.
std::optional<double> judged_value(const KeepBestSettings& settings, const MeasuredMetrics& measured);

}  // namespace tessera
