#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/base/recomputing.h"
#include "src/models/per_sample_rng.h"
#include "src/objectives/grad_cache.h"
#include "src/training/step/grad_cache.h"
#include "src/training/step/tensors_kept.h"
#include <tessera/base/random.h>

namespace tessera {
namespace {

class Chunks {
 public:
  Chunks(TrainingRun& run, const Batch& batch, const GradCacheStep& step)
      : run_(run), batch_(batch), step_(step), rows_{batch.size(), step.chunk} {}

  const ChunkedRows& rows() const { return rows_; }

  Features encode_student(std::int64_t index) const {
    at::manual_seed(derive_seed(step_.seed, Purpose::step, {static_cast<std::uint64_t>(index)}));
    const at::Tensor& keys = step_.row_keys;
    const RowRngScope keyed(keys.defined() ? keys.narrow(0, rows_.first(index), rows_.size(index)) : keys);
    return tessera::encode_student(run_, chunk(index), step_.precision);
  }
  void add_teacher_features(std::int64_t index, Features& features) const {
    tessera::add_teacher_features(run_, chunk(index), step_.precision, features);
  }

 private:
  Batch chunk(std::int64_t index) const { return slice(batch_, rows_.first(index), rows_.size(index)); }

  TrainingRun& run_;
  const Batch& batch_;
  const GradCacheStep& step_;
  ChunkedRows rows_;
};

}  // namespace

Losses cached_backward(TrainingRun& run, GradientReducer& gradients, const Batch& batch, const GradCacheStep& step,
                       const StepContext& context) {
  const Chunks chunks(run, batch, step);
  Features whole;
  {
    const c10::NoGradGuard no_grad;
    const TensorsKept buffers(run.model->buffers());  // only the second pass may update the running averages of batch norm
    std::vector<Features> pieces;
    const auto encoded = time_device(run.device);
    for (std::int64_t i = 0; i < chunks.rows().count(); ++i) {
      {
        // FLOPs of this first pass count as recomputation. FLOPs of the second pass count as the model's FLOPs.
        const Recomputing twice;
        pieces.push_back(chunks.encode_student(i));
      }
      chunks.add_teacher_features(i, pieces.back());
    }
    if (step.forward != nullptr) step.forward->push_back(encoded());
    whole = joined(pieces);
  }
  require_gradients(whole);

  Losses losses = run.objective->forward(whole, context);
  gradients.backward(step.weight.defined() ? losses.total * step.weight : losses.total, BackwardPass::few);
  backward_through_chunks(
      whole, chunks.rows(), [&](std::int64_t index) { return chunks.encode_student(index); },
      [&](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& at_outputs, bool last) {
        gradients.backward(outputs, at_outputs, step.reduce && last ? BackwardPass::last : BackwardPass::some);
      });
  losses.total = losses.total.detach();
  for (auto& [name, term] : losses.terms) term = term.detach();
  return losses;
}

}  // namespace tessera
