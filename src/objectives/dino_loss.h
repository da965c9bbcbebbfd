#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <tessera/config/fields.h>
#include <tessera/distributed/process_group.h>

namespace tessera {

struct DinoLossSettings {
  double student_temperature = 0.1;
  double teacher_temperature = 0.04;
  double warmup_teacher_temperature = 0.04;
  std::int64_t warmup_teacher_temperature_epochs = 0;
  double center_momentum = 0.9;
};

template <class Visitor>
void fields(Visitor& v, DinoLossSettings& s) {
  v("student_temperature", s.student_temperature, "temperature of the student's softmax", config::above(0.0));
  v("teacher_temperature", s.teacher_temperature, "temperature of the teacher's softmax", config::above(0.0));
  v("warmup_teacher_temperature", s.warmup_teacher_temperature,
    "temperature of the teacher's softmax in the first epoch of warm-up", config::above(0.0));
  v("warmup_teacher_temperature_epochs", s.warmup_teacher_temperature_epochs,
    "epochs of linear warm-up to teacher_temperature; 0: no warm-up",
    config::at_least(0));
  v("center_momentum", s.center_momentum, "momentum of the center's moving average", config::in_range(0, 1));
}

/// Returns the teacher's temperature in an epoch (0 is the first). During warm-up it follows numpy's linspace from the warm-up value to the
/// final value (a warm-up of one epoch uses the warm-up value); afterwards it is the final value.
double teacher_temperature_at(std::int64_t epoch, const DinoLossSettings& settings);

/// DINO's loss (Caron et al. 2021, eq. 1 to 4): cross-entropy of the student's softmax over K outputs with the teacher's softmax.
/// The teacher's softmax is centered and sharpened, which prevents collapse to one output or to the uniform distribution. The
/// buffer `center` [1, K] is a moving average of the teacher's logits.
class DinoLoss : public torch::nn::Module {
 public:
  DinoLoss(const DinoLossSettings& settings, std::int64_t out_dim);

  /// Maps the teacher's logits [R, K] to its probabilities [R, K], without gradient.
  at::Tensor probabilities(const at::Tensor& teacher_logits, std::int64_t epoch) const;

  /// Returns the mean loss over the batch and over all pairs of crops. A pair consists of a global crop, which the teacher sees, and a
  /// different crop, which the student sees.
  /// student  per crop, global crops first: logits [B, K]; with `last_layer` [K, W], the last layer's inputs [B, W] instead;
  ///          undefined crops are skipped
  /// teacher  per global crop: probabilities [B, K]
  /// With `last_layer`, the logits of only one crop are in memory at a time, in the forward and in the backward pass; second derivatives
  /// are then not supported. Without `last_layer`, the logits of ten crops take ten times the memory, which matters for K = 65,536.
  at::Tensor forward(const std::vector<at::Tensor>& student, const std::vector<at::Tensor>& teacher,
                     const at::Tensor& last_layer = {}) const;

  /// The result of of_rows().
  struct Rows {
    at::Tensor losses;     // [R]
    at::Tensor entropies;  // [R], entropies of the teacher's probabilities, without gradient
  };
  /// Returns, for each row, the cross-entropy of the student's prediction with the teacher's probabilities (iBOT, Zhou et al. 2022). The
  /// student's logits are the product of `student` [R, W] and the transposed `last_layer` [K, W]. The teacher's logits are the product of
  /// `goals` [R, V] and the transposed `goal_layer` [K, V], and get no gradient. Distributions over K are in memory for only `chunk` rows
  /// at a time, in the forward and in the backward pass.
  Rows of_rows(const at::Tensor& student, const at::Tensor& last_layer, const at::Tensor& goals,
               const at::Tensor& goal_layer, std::int64_t epoch, std::optional<std::int64_t> chunk) const;

  /// Moves the center toward the mean of the teacher's logits [R, K] over the rows of all ranks.
  void move_center(const at::Tensor& teacher_logits, const ProcessGroup& group);

 private:
  DinoLossSettings settings_;
  at::Tensor center_;
};

}  // namespace tessera
