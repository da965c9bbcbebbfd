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
  v("student_temperature", s.student_temperature, "of the student's softmax", config::above(0.0));
  v("teacher_temperature", s.teacher_temperature, "of the teacher's softmax", config::above(0.0));
  v("warmup_teacher_temperature", s.warmup_teacher_temperature,
    "of the teacher's softmax in the first epoch of warm-up", config::above(0.0));
  v("warmup_teacher_temperature_epochs", s.warmup_teacher_temperature_epochs,
    "epochs in which it goes linearly to teacher_temperature; 0: it is that from the first one on",
    config::at_least(0));
  v("center_momentum", s.center_momentum, "share of the old center that stays when it moves", config::in_range(0, 1));
}

/// The teacher's temperature in an epoch (0 = first): numpy's linspace from the warm-up's value to the final one over the
/// epochs of warm-up, of which a single one has the former; then the final one.
double teacher_temperature_at(std::int64_t epoch, const DinoLossSettings& settings);

/// DINO's loss (Caron et al. 2021, eq. 1 to 4): cross-entropy of the student's softmax over K outputs with the
/// teacher's, which is centered and sharpened, so that neither one output nor all of them alike is a solution. Buffer
/// `center` [1, K], a moving average of the teacher's logits.
class DinoLoss : public torch::nn::Module {
 public:
  DinoLoss(const DinoLossSettings& settings, std::int64_t out_dim);

  /// The teacher's logits [R, K] -> its probabilities [R, K], without gradient.
  at::Tensor probabilities(const at::Tensor& teacher_logits, std::int64_t epoch) const;

  /// The mean over the batch and over the pairs of a global crop, as the teacher sees it, and any other crop, as the
  /// student does.
  /// student  of each crop [B, K] logits, or with `last_layer` [K, W] what it multiplies, [B, W]; the global crops come
  ///          first; an undefined crop takes no part
  /// teacher  of each global crop probabilities [B, K]
  /// With `last_layer` logits exist for one crop at a time, forward and again backward: at K = 65,536 those of all ten
  /// would be ten times as large. Second derivatives are refused.
  at::Tensor forward(const std::vector<at::Tensor>& student, const std::vector<at::Tensor>& teacher,
                     const at::Tensor& last_layer = {}) const;

  /// What of_rows() gives.
  struct Rows {
    at::Tensor losses;     // [R]
    at::Tensor entropies;  // [R], of the teacher's probabilities, without gradient
  };
  /// The cross-entropy of each row, as the student sees it, with the teacher's probabilities for it (iBOT, Zhou et al. 2022).
  /// student [R, W] and last_layer [K, W], goals [R, V] and goal_layer [K, V] of the teacher, which get no gradient. Of the
  /// distributions over K those of `chunk` rows exist at a time, forward and again backward.
  Rows of_rows(const at::Tensor& student, const at::Tensor& last_layer, const at::Tensor& goals,
               const at::Tensor& goal_layer, std::int64_t epoch, std::optional<std::int64_t> chunk) const;

  /// Moves the center towards the mean of the teacher's logits [R, K] over the rows of all ranks.
  void move_center(const at::Tensor& teacher_logits, const ProcessGroup& group);

 private:
  DinoLossSettings settings_;
  at::Tensor center_;
};

}  // namespace tessera
