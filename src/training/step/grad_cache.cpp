#include <algorithm>
#include <functional>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/random.h>
#include <tessera/base/recomputing.h>
#include <tessera/models/per_sample_rng.h>
#include <tessera/training/step/grad_cache.h>
#include <tessera/training/step/tensors_kept.h>

namespace tessera {
namespace {

class Chunks {
 public:
  Chunks(TrainingRun& run, const Batch& batch, const GradCacheStep& step) : run_(run), batch_(batch), step_(step) {}

  std::int64_t count() const { return (batch_.size() + step_.chunk - 1) / step_.chunk; }
  std::int64_t first(std::int64_t index) const { return index * step_.chunk; }
  std::int64_t size(std::int64_t index) const { return std::min(step_.chunk, batch_.size() - first(index)); }

  Features encode_student(std::int64_t index) const {
    at::manual_seed(derive_seed(step_.seed, Purpose::step, {static_cast<std::uint64_t>(index)}));
    const at::Tensor& keys = step_.row_keys;
    const RowRngScope keyed(keys.defined() ? keys.narrow(0, first(index), size(index)) : keys);
    return tessera::encode_student(run_, chunk(index), step_.precision);
  }
  void add_teacher_features(std::int64_t index, Features& features) const {
    tessera::add_teacher_features(run_, chunk(index), step_.precision, features);
  }

 private:
  Batch chunk(std::int64_t index) const { return slice(batch_, first(index), size(index)); }

  TrainingRun& run_;
  const Batch& batch_;
  const GradCacheStep& step_;
};

// body(a, b) with the tensors of the student's views of both.
void for_each_view(const Features& a, const Features& b,
                   const std::function<void(const at::Tensor&, const at::Tensor&)>& body) {
  const auto tensors = [](const Features& features) {
    std::vector<at::Tensor> out;
    for (const auto* views : {&features.images, &features.texts})
      for (const auto& [name, view] : *views)
        for_each_tensor(view, [&](const at::Tensor& tensor) { out.push_back(tensor); });
    return out;
  };
  const std::vector<at::Tensor> ours = tensors(a), theirs = tensors(b);
  for (std::size_t i = 0; i < ours.size(); ++i) body(ours[i], theirs[i]);
}

}  // namespace

Losses cached_backward(TrainingRun& run, GradientReducer& gradients, const Batch& batch, const GradCacheStep& step,
                       const StepContext& context) {
  const Chunks chunks(run, batch, step);
  Features whole;
  {
    const c10::NoGradGuard no_grad;
    const TensorsKept buffers(run.model->buffers());  // running averages of batch norms move in the second pass only
    std::vector<Features> pieces;
    for (std::int64_t i = 0; i < chunks.count(); ++i) {
      {
        const Recomputing twice;  // the second pass is the model's own
        pieces.push_back(chunks.encode_student(i));
      }
      chunks.add_teacher_features(i, pieces.back());
    }
    whole = joined(pieces);
  }
  require_gradients(whole);

  Losses losses = run.objective->forward(whole, context);
  gradients.backward(losses.total * step.weight, /*reduce=*/false);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const Features features = chunks.encode_student(i);
    std::vector<at::Tensor> roots, at_roots;
    for_each_view(whole, features, [&](const at::Tensor& leaf, const at::Tensor& output) {
      if (!leaf.defined() || !leaf.grad().defined() || !output.requires_grad()) return;
      roots.push_back(output);
      at_roots.push_back(leaf.grad().narrow(0, chunks.first(i), chunks.size(i)));
    });
    gradients.backward(roots, at_roots, step.reduce && i + 1 == chunks.count());
  }
  losses.total = losses.total.detach();
  for (auto& [name, term] : losses.terms) term = term.detach();
  return losses;
}

}  // namespace tessera
