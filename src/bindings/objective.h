#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "src/bindings/object.h"
#include <tessera/batch.h>
#include <tessera/features.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// A batch or features as one dict. The name of a view's tensor consists of the view's name and a suffix.
using Tensors = c10::Dict<std::string, at::Tensor>;

/// An objective for Python. python/tessera/objectives.py wraps it.
class BoundObjective {
 public:
  /// `choice` is JSON of the setting `objective`. The numbers are those of ObjectiveContext; `logit_scale` and `model`, a handle, may be
  /// none. Throws UserError if the settings are wrong, or if the objective needs what only the trainer has.
  BoundObjective(const std::string& choice, std::int64_t embed_dim, std::int64_t image_width, std::int64_t vocab_size,
                 const std::optional<at::Tensor>& model, const std::optional<at::Tensor>& logit_scale);

  /// Returns the parameters and buffers themselves, not copies.
  Tensors tensors() const;
  /// Returns, as JSON, the tensors that the objective needs from each view.
  std::string needs_as_json() const;
  void train(bool on) { objective_->train(on); }
  /// Returns the loss, its terms and its statistics for this rank. `group` is the name of a group of torch.distributed; empty: no other ranks.
  std::tuple<at::Tensor, Tensors, Tensors> forward(const Tensors& features, std::int64_t step, std::int64_t total_steps, std::int64_t epoch,
                                                   std::int64_t seed, const std::string& group);
  void after_step(std::int64_t step);

  const Needs& needs() const { return needs_; }

 private:
  std::shared_ptr<Objective> objective_;
  Needs needs_;
};

/// Returns the compiled model of a handle (src/bindings/model.cpp).
DualEncoder& dual_encoder_of(const at::Tensor& model);

/// Returns a batch as a dict, and the batch of such a dict. The main tensor of a view has the view's name; its other tensors have the view's
/// name with a suffix ("_mask").
Tensors batch_tensors(Batch& batch);
Batch batch_of(const Tensors& tensors, const Needs& needs);

/// Returns features as a dict: "image.embeddings", "caption.tokens" and so on.
Tensors feature_tensors(Features& features);

}  // namespace tessera
