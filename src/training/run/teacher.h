#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/ema.h>

namespace tessera {

/// Returns the name that an objective's parameter or buffer has in checkpoints. `logit_scale` and `logit_bias` keep their names; other
/// names get the prefix `objective.`.
std::string objective_name(const std::string& name);

/// Returns the parameters and buffers of an objective by their names in checkpoints. The tensors are shared with the objective.
std::map<std::string, at::Tensor> objective_state(const Objective& objective);

/// Returns the parameters and buffers of model and objective by their names in checkpoints. The tensors share memory with the modules.
std::map<std::string, at::Tensor> collect_weights(const DualEncoder& model, const Objective& objective);

/// The moving average of the weights as a separate model, for objectives that need the average's features. Its weights are the tensors that
/// hold the averages, so checkpoints contain them. It computes in evaluation mode and without gradients. After each optimizer step the
/// trainer moves the averages with the momentum of the objective's teacher_momentum().
struct Teacher {
  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;
  Ema ema;
};

/// Turns a second model and a second objective, built with the same settings, into the teacher of `model` and `objective`. The
/// teacher starts from their weights.
Teacher make_teacher(std::shared_ptr<DualEncoder> second_model, std::shared_ptr<Objective> second_objective,
                     const DualEncoder& model, const Objective& objective);

/// Adds the teacher's features for the views whose entries in `needs` ask for a teacher.
void add_teacher_features(const Teacher& teacher, const Batch& batch, const Needs& needs, Features& features);

}  // namespace tessera
