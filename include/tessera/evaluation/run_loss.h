#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <tessera/data/source.h>
#include <tessera/distributed/process_group.h>
#include <tessera/report/task_result.h>

namespace tessera {

class Objective;
class ReportedSamples;

/// The batches on which a loss is measured.
struct LossBatches {
  std::shared_ptr<const Source> source;
  std::optional<std::int64_t> batch_size;  // nullopt: the training batch size
  std::int64_t max_samples = -1;           // maximum number of samples; -1: all
  std::int64_t threads = 2;
  std::shared_ptr<ReportedSamples> reported;       // skipped samples that the log has already reported; may be null
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // called after each batch; may be empty
  /// Ranks that each encode a part of every batch. All of them must measure the same batches of the same run, and get the same result.
  ProcessGroup group;
};

/// Lets evaluation tasks measure the loss of a run's objective. Tasks cannot use the objective directly, because it needs more of
/// the model than an Embedder exposes.
class RunLoss {
 public:
  virtual ~RunLoss() = default;
  /// Throws UserError if the data do not fill a batch or lack something that the objective needs.
  virtual void check(const LossBatches& batches) const = 0;
  /// Returns the mean of `loss` and of each of the objective's terms over full batches, in evaluation mode. A smaller last batch
  /// and all unusable samples are left out. The result is deterministic. Throws like check().
  virtual TaskResult measure(const LossBatches& batches) const = 0;
  /// Returns the objective with its weights, for tasks that need more than the loss, such as the captions that its decoder writes.
  /// Throws UserError if the objective cannot be built.
  virtual std::shared_ptr<Objective> objective() const = 0;
};

}  // namespace tessera
