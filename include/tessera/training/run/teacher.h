#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/ema.h>

namespace tessera {

/// The name under which checkpoints hold an objective's parameter or buffer: `logit_scale` and `logit_bias` as they are, the
/// others as `objective.*`.
std::string objective_name(const std::string& name);

/// Parameters and buffers of an objective under those names; shared with it.
std::map<std::string, at::Tensor> objective_state(const Objective& objective);

/// Parameters and buffers of model and objective under checkpoint names; shared with them.
std::map<std::string, at::Tensor> weights_of(const DualEncoder& model, const Objective& objective);

/// The moving average of the weights as a model of its own, for objectives that ask for its features. Its weights are the
/// averages themselves, so that checkpoints hold them; it computes in evaluation mode and without gradients. After each
/// update the trainer moves it by the objective's teacher_momentum().
struct Teacher {
  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;
  Ema ema;
};

/// Makes a second model and objective of the same settings the teacher of `model` and `objective`, from whose weights it starts.
Teacher make_teacher(std::shared_ptr<DualEncoder> second_model, std::shared_ptr<Objective> second_objective,
                     const DualEncoder& model, const Objective& objective);

/// Adds the teacher's features of the views for which the needs ask for them.
void add_teacher_features(const Teacher& teacher, const Batch& batch, const Needs& needs, Features& features);

}  // namespace tessera
