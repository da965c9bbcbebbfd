#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/ema.h>

namespace tessera {

class Tokenizer;

/// Returns the name that an objective's parameter or buffer has in checkpoints. `logit_scale` and `logit_bias` keep their names; other
/// names get the prefix `objective.`.
std::string objective_name(const std::string& name);

/// Returns the parameters and buffers of an objective by their names in checkpoints. The tensors are shared with the objective.
std::map<std::string, at::Tensor> objective_state(const Objective& objective);

/// Returns the parameters and buffers of model and objective by their names in checkpoints. The tensors share memory with the modules.
std::map<std::string, at::Tensor> collect_weights(const DualEncoder& model, const Objective& objective);

/// A second model, for objectives that need its features. It computes in evaluation mode and without gradients. It is either the moving
/// average of the weights or a frozen model. The weights of the former are the tensors that hold the averages, so checkpoints contain them;
/// after each optimizer step the trainer moves the averages with the momentum of the objective's teacher_momentum(). A frozen model is no
/// part of checkpoints, whose settings name it.
struct Teacher {
  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;  // null if the model is frozen
  Ema ema;                               // of no tensor if the model is frozen
  std::shared_ptr<const Tokenizer> tokenizer{};  // a frozen model's own
  std::optional<double> scale{};         // the learned factor of a frozen model's cosines, if it has one

  bool frozen() const { return objective == nullptr; }
};

/// Turns a second model and a second objective, built with the same settings, into the teacher of `model` and `objective`. The
/// teacher starts from their weights.
Teacher make_teacher(std::shared_ptr<DualEncoder> second_model, std::shared_ptr<Objective> second_objective,
                     const DualEncoder& model, const Objective& objective);

/// Turns a model into a frozen teacher. `tokenizer` is the model's own, and `scale` its learned factor of cosines; both may be missing.
Teacher frozen_teacher(std::shared_ptr<DualEncoder> model, std::optional<double> scale, std::shared_ptr<const Tokenizer> tokenizer = nullptr);

/// Loads the frozen model `path` (load_for_inference()), to encode the images and texts of a student with this preprocessing and
/// tokenizer; the tokenizer is null if it is not known. If the student's images have another size, the model's positions are resampled.
/// Throws UserError if the model cannot be read, lacks a text tower, cannot take the student's images, or tokenizes texts in another way.
Teacher load_teacher(const std::string& path, const Preprocessing& preprocessing, const Tokenizer* tokenizer, const at::Device& device);

/// Adds the teacher's features for the views whose entries in `needs` ask for a teacher.
void add_teacher_features(const Teacher& teacher, const Batch& batch, const Needs& needs, Features& features);

}  // namespace tessera
