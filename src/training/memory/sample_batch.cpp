#include "src/training/memory/sample_batch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <tessera/training/step/grad_cache.h>

namespace tessera {
namespace {

at::Tensor repeated_rows(const at::Tensor& tensor, std::int64_t count) {
  if (!tensor.defined()) return tensor;
  return tensor.index_select(0, at::arange(count, tensor.options().dtype(at::kLong)).remainder(tensor.size(0)));
}

}  // namespace

Batch first_samples(const TrainingRun& run, const Config& config, std::int64_t count, const RankSlice& shard) {
  Config few = config;
  few.data.loader.batch_size = std::min(count, config.data.loader.batch_size);
  few.data.loader.prefetch = 1;
  return make_loader(run, few, shard)->next().to(run.device);
}

Batch repeated(const Batch& batch, std::int64_t count) {
  Batch out;
  for (const auto& [name, image] : batch.images) out.images[name] = repeated_rows(image, count);
  for (const auto& [name, text] : batch.texts)
    out.texts[name] = {repeated_rows(text.ids, count), repeated_rows(text.mask, count)};
  out.regions = repeated_rows(batch.regions, count);
  out.region_mask = repeated_rows(batch.region_mask, count);
  out.labels = repeated_rows(batch.labels, count);
  out.image_group = repeated_rows(batch.image_group, count);
  out.caption_group = repeated_rows(batch.caption_group, count);
  for (std::int64_t i = 0; i < count; ++i) out.keys.push_back(batch.keys[static_cast<std::size_t>(i % batch.size())]);
  return out;
}

Features repeated_leaves(const Features& features, std::int64_t count) {
  Features out = features;
  for (at::Tensor* tensor : feature_tensors(out)) {
    if (!tensor->defined()) continue;
    *tensor = repeated_rows(tensor->detach(), count);
    if (tensor->is_floating_point()) tensor->set_requires_grad(true);
  }
  for (at::Tensor* ids : {&out.image_group, &out.caption_group})
    if (ids->defined()) *ids = at::arange(count, ids->options());
  return out;
}

TensorsKept::TensorsKept(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const at::Tensor& tensor : tensors_) values_.push_back(tensor.detach().clone());
}

TensorsKept::~TensorsKept() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(values_[i]);
}

}  // namespace tessera
