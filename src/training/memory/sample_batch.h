#pragma once

#include <vector>

#include <tessera/batch.h>
#include <tessera/features.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// The first samples of the rank's data, at most a batch; on the parts' device. The run's own loader stays where it is.
Batch first_samples(const TrainingRun& run, const Config& config, std::int64_t count, const RankSlice& shard);

/// Gives tensors their values back when it goes.
class TensorsKept {
 public:
  explicit TensorsKept(std::vector<at::Tensor> tensors);
  ~TensorsKept();
  TensorsKept(const TensorsKept&) = delete;
  TensorsKept& operator=(const TensorsKept&) = delete;

 private:
  std::vector<at::Tensor> tensors_, values_;
};

}  // namespace tessera
