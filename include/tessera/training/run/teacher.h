#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/ema.h>

namespace tessera {

/// Returns the checkpoint name of an objective's parameter or buffer: `logit_scale` and `logit_bias` are unchanged, the others become
/// `objective.*`.
std::string objective_name(const std::string& name);

/// Returns parameters and buffers of an objective under checkpoint names; the tensors are shared with it.
std::map<std::string, at::Tensor> objective_state(const Objective& objective);

/// Returns parameters and buffers of model and objective under checkpoint names; the tensors are shared with them.
std::map<std::string, at::Tensor> weights_of(const DualEncoder& model, const Objective& objective);

/// The moving average of the weights as a separate model, for objectives that need its features. Its weights are the averages
/// themselves, so that checkpoints hold them; it computes in evaluation mode and without gradients. After each update the trainer
/// updates it with the objective's teacher_momentum().
struct Teacher {
  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;
  Ema ema;
};

/// Makes a second model and objective with the same settings the teacher of `model` and `objective`; it starts from their weights.
Teacher make_teacher(std::shared_ptr<DualEncoder> second_model, std::shared_ptr<Objective> second_objective,
                     const DualEncoder& model, const Objective& objective);

/// Adds the teacher's features of the views whose needs ask for them.
void add_teacher_features(const Teacher& teacher, const Batch& batch, const Needs& needs, Features& features);

}  // namespace tessera
