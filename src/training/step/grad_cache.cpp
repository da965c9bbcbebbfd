#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/random.h>
#include <tessera/base/recomputing.h>
#include <tessera/models/per_sample_rng.h>
#include <tessera/training/step/grad_cache.h>

namespace tessera {
namespace {

// The tensors of one view.
std::vector<at::Tensor*> members(ImageFeatures& f) {
  return {&f.global, &f.tokens, &f.mask, &f.dense, &f.slots, &f.attention};
}
std::vector<at::Tensor*> members(TextFeatures& f) {
  return {&f.global, &f.tokens, &f.mask, &f.slots, &f.attention};
}

// All tensors in a fixed order, undefined ones as well.
std::vector<at::Tensor*> members(Features& features) {
  std::vector<at::Tensor*> out;
  const auto add = [&](std::vector<at::Tensor*> some) { out.insert(out.end(), some.begin(), some.end()); };
  for (auto& [name, view] : features.images) add(members(view));
  for (auto& [name, view] : features.texts) add(members(view));
  add({&features.image_group, &features.caption_group});
  return out;
}

// The chunks' features as those of one batch.
Features joined(std::vector<Features>& chunks) {
  Features out = chunks[0];
  std::vector<std::vector<at::Tensor*>> parts;
  for (Features& chunk : chunks) parts.push_back(members(chunk));
  const std::vector<at::Tensor*> whole = members(out);
  for (std::size_t k = 0; k < whole.size(); ++k) {
    if (!whole[k]->defined()) continue;
    std::vector<at::Tensor> pieces;
    for (const auto& part : parts) pieces.push_back(*part[k]);
    *whole[k] = at::cat(pieces);
  }
  return out;
}

// Running averages of batch norms move in the second pass only.
class BuffersKept {
 public:
  explicit BuffersKept(const DualEncoder& model) : buffers_(model.buffers()) {
    for (const at::Tensor& buffer : buffers_) values_.push_back(buffer.clone());
  }
  ~BuffersKept() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }
  BuffersKept(const BuffersKept&) = delete;
  BuffersKept& operator=(const BuffersKept&) = delete;

 private:
  std::vector<at::Tensor> buffers_, values_;
};

class Chunks {
 public:
  Chunks(TrainingRun& run, const Batch& batch, const GradCacheStep& step) : run_(run), batch_(batch), step_(step) {}

  std::int64_t count() const { return (batch_.size() + step_.chunk - 1) / step_.chunk; }
  std::int64_t first(std::int64_t index) const { return index * step_.chunk; }
  std::int64_t size(std::int64_t index) const { return std::min(step_.chunk, batch_.size() - first(index)); }

  Features encode(std::int64_t index) const {
    at::manual_seed(derive_seed(step_.seed, Purpose::step, {static_cast<std::uint64_t>(index)}));
    const at::Tensor& keys = step_.row_keys;
    const RowRngScope keyed(keys.defined() ? keys.narrow(0, first(index), size(index)) : keys);
    return encode_batch(run_, slice(batch_, first(index), size(index)), step_.precision);
  }

 private:
  TrainingRun& run_;
  const Batch& batch_;
  const GradCacheStep& step_;
};

}  // namespace

std::vector<at::Tensor*> feature_tensors(Features& features) {
  return members(features);
}

Batch slice(const Batch& batch, std::int64_t first, std::int64_t count) {
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, first, count) : tensor;
  };
  Batch out;
  for (const auto& [name, image] : batch.images) out.images[name] = part(image);
  for (const auto& [name, text] : batch.texts) out.texts[name] = {part(text.ids), part(text.mask)};
  out.regions = part(batch.regions);
  out.region_mask = part(batch.region_mask);
  out.labels = part(batch.labels);
  out.image_group = part(batch.image_group);
  out.caption_group = part(batch.caption_group);
  out.keys.assign(batch.keys.begin() + first, batch.keys.begin() + first + count);
  return out;
}

Losses cached_backward(TrainingRun& run, GradientReducer& gradients, const Batch& batch, const GradCacheStep& step,
                       const StepContext& context) {
  const Chunks chunks(run, batch, step);
  Features whole;
  {
    const c10::NoGradGuard no_grad;
    const Recomputing twice;  // the second pass is the model's own
    const BuffersKept buffers(*run.model);
    std::vector<Features> pieces;
    for (std::int64_t i = 0; i < chunks.count(); ++i) pieces.push_back(chunks.encode(i));
    whole = joined(pieces);
  }
  const std::vector<at::Tensor*> leaves = members(whole);
  for (at::Tensor* leaf : leaves)
    if (leaf->defined() && leaf->is_floating_point()) leaf->set_requires_grad(true);

  Losses losses = run.objective->forward(whole, context);
  gradients.backward(losses.total * step.weight, /*reduce=*/false);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    Features features = chunks.encode(i);
    const std::vector<at::Tensor*> outputs = members(features);
    std::vector<at::Tensor> roots, at_roots;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      if (!leaves[k]->defined() || !leaves[k]->grad().defined() || !outputs[k]->requires_grad()) continue;
      roots.push_back(*outputs[k]);
      at_roots.push_back(leaves[k]->grad().narrow(0, chunks.first(i), chunks.size(i)));
    }
    gradients.backward(roots, at_roots, step.reduce && i + 1 == chunks.count());
  }
  losses.total = losses.total.detach();
  for (auto& [name, term] : losses.terms) term = term.detach();
  return losses;
}

}  // namespace tessera
