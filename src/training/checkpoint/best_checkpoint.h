#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// The metrics of an evaluation: pairs of a name ("task.metric") and a value.
using MeasuredMetrics = std::vector<std::pair<std::string, double>>;

/// The best checkpoint according to checkpoint.keep_best.
struct BestCheckpoint {
  std::int64_t step = 0;
  double value = 0;
};

/// The file `best` in a folder of checkpoints. It holds the best checkpoint's name, the metric, the mode and the value, as in
/// "step_0000100 retrieval.text_to_image_recall@1 max 0.51".
class BestFile {
 public:
  /// `folder` is the folder of checkpoints.
  BestFile(const std::string& folder, const KeepBestSettings& settings);

  /// Returns the checkpoint that the file names. Returns nothing if the file does not exist, if the metric or mode in the file is not that
  /// of the settings, or if the named checkpoint does not exist.
  std::optional<BestCheckpoint> read() const;
  /// Writes the file. Throws UserError if that fails.
  void write(const BestCheckpoint& best) const;

 private:
  std::string folder_, rule_;
};

/// The file `best` in `folder` names a checkpoint. Returns this checkpoint's folder, regardless of the metric that chose it; empty if the
/// file or the checkpoint does not exist.
std::string best_checkpoint_in(const std::string& folder);

/// Returns true if greater values of the metric are better. The setting `mode` decides; if it is null, the metric's name decides (for
/// example, a smaller loss, rank or error is better).
bool greater_is_better(const KeepBestSettings& settings);

/// Returns the measured value of the metric that `settings` names; nothing if the value is NaN or infinite. If the metric was not
/// measured, throws UserError, which lists the measured metrics.
std::optional<double> judged_value(const KeepBestSettings& settings, const MeasuredMetrics& measured);

}  // namespace tessera
