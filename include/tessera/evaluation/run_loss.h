#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <tessera/data/loading/told_samples.h>
#include <tessera/data/source.h>
#include <tessera/report/task_result.h>

namespace tessera {

class Objective;

/// On which batches a loss is measured.
struct LossBatches {
  std::shared_ptr<const Source> source;
  std::optional<std::int64_t> batch_size;  // none: the batch of training
  std::int64_t max_samples = -1;           // -1: all
  std::int64_t threads = 2;
  std::shared_ptr<ToldSamples> told;       // which samples the log has named as left out; may be null
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // called after each batch; may be empty
};

/// The training loss of a run's own objective as evaluation may ask for it: tasks see no objective, which sees more of a
/// model than an Embedder shows.
class RunLoss {
 public:
  virtual ~RunLoss() = default;
  /// Throws UserError if the data are too few for a batch, or lack what the objective needs.
  virtual void check(const LossBatches& batches) const = 0;
  /// The mean of `loss` and of each of the objective's terms over whole batches, in evaluation mode; a last, smaller batch
  /// is left out, and so are samples that cannot be used, however many. The same data and weights give the same numbers. Throws as check().
  virtual TaskResult measure(const LossBatches& batches) const = 0;
  /// The objective with its weights, for tasks that ask it for more than a loss (what its decoder writes). Throws UserError if
  /// it cannot be built.
  virtual std::shared_ptr<Objective> objective() const = 0;
};

}  // namespace tessera
