#include "src/training/memory/sample_batch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <tessera/training/step/grad_cache.h>

namespace tessera {
Batch first_samples(const TrainingRun& run, const Config& config, std::int64_t count, const RankSlice& shard) {
  Config few = config;
  few.data.loader.batch_size = std::min(count, config.data.loader.batch_size);
  few.data.loader.prefetch = 1;
  return make_loader(run, few, shard)->next().to(run.device);
}

TensorsKept::TensorsKept(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const at::Tensor& tensor : tensors_) values_.push_back(tensor.detach().clone());
}

TensorsKept::~TensorsKept() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(values_[i]);
}

}  // namespace tessera
