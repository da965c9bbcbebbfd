#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "src/objectives/teacher_momentum.h"
#include <tessera/config/fields.h>
#include <tessera/distributed/process_group.h>
#include <tessera/objectives/objective.h>

namespace tessera {

struct DinoHeadSettings {
  std::int64_t out_dim = 65536;
  std::int64_t layers = 3;
  std::int64_t hidden_dim = 2048;
  std::int64_t bottleneck_dim = 256;
  bool norm_last_layer = true;
};

void fields(auto& v, DinoHeadSettings& s) {
  v("out_dim", s.out_dim, "K, number of outputs of the head (unlabeled classes)", config::at_least(1));
  v("layers", s.layers, "number of linear layers of the head's MLP", config::in_range(1, config::kMostCount));
  v("hidden_dim", s.hidden_dim, "hidden width of the head's MLP", config::at_least(1));
  v("bottleneck_dim", s.bottleneck_dim, "width of the MLP's output, whose rows are normalized to length 1",
    config::at_least(1));
  v("norm_last_layer", s.norm_last_layer, "true: the rows of the last layer keep length 1; false: their lengths are learned too");
}

/// The projection head of DINO (Caron et al. 2021, appendix C): an MLP with GELU, normalization of rows to length 1, and a last
/// layer without bias whose rows are weight_g * weight_v / |weight_v|. Parameters have the names of the authors' code: `mlp.0`,
/// `mlp.2`, ... (with one layer: `mlp`), `last_layer.weight_g` [K, 1], `last_layer.weight_v` [K, bottleneck_dim].
class DinoHead : public torch::nn::Module {
 public:
  /// `width` is the input's width. The weights of the MLP's linear layers are initialized from a normal distribution with standard
  /// deviation 0.02, their biases with 0.
  DinoHead(const DinoHeadSettings& settings, std::int64_t width);

  /// Maps x [R, width] to unit-norm rows [R, bottleneck_dim], in float32, or in float64 if x is float64.
  at::Tensor bottleneck(const at::Tensor& x);
  /// Returns the last layer's matrix [K, bottleneck_dim].
  at::Tensor last_layer() const;
  /// Returns logits [R, K], the last layer's output for bottleneck(x).
  at::Tensor forward(const at::Tensor& x);

 private:
  std::vector<torch::nn::Linear> mlp_;
  at::Tensor weight_g_, weight_v_;
};

struct DinoLossSettings {
  double student_temperature = 0.1;
  double teacher_temperature = 0.04;
  double warmup_teacher_temperature = 0.04;
  std::int64_t warmup_teacher_temperature_epochs = 0;
  double center_momentum = 0.9;
};

void fields(auto& v, DinoLossSettings& s) {
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

struct DinoSettings {
  std::int64_t global_crops = 2;
  std::int64_t local_crops = 8;
  bool student_global_crops = true;
  DinoHeadSettings head;
  DinoLossSettings loss;
  TeacherMomentum momentum;
};

void fields(auto& v, DinoSettings& s) {
  v("global_crops", s.global_crops, "number of large crops (the image views global_0, global_1, ...), which the teacher sees",
    config::in_range(1, 100));
  v("local_crops", s.local_crops, "number of small crops (the image views local_0, local_1, ...), which only the student sees",
    config::in_range(0, 100));
  v("student_global_crops", s.student_global_crops,
    "the student's global crops are also compared with the teacher's other global crops; false: only its local crops are compared "
    "(SILC)");
  fields(v, s.head);
  fields(v, s.loss);
  fields(v, s.momentum);
}
std::optional<config::Problem> validate(const DinoSettings& settings);

/// DINO (Caron et al. 2021): from one crop of an image, the student predicts the teacher's output for another, large crop; the
/// teacher is a moving average of the student. The objective uses only image embeddings, passes them through its own head `head.*`
/// (DinoHead), and has the buffer `loss.center` (DinoLoss). The center moves at the end of each training forward pass, like the
/// running averages of batch norm. Term `teacher_entropy`: the entropy of the teacher's probabilities, averaged over rows; a value
/// near 0 or near log K means that the model has collapsed.
class Dino : public Objective {
 public:
  Dino(const DinoSettings& settings, const ObjectiveContext& context);
  /// Throws c10::Error if the run keeps no teacher.
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  bool follows_step() const override { return true; }
  double teacher_momentum(const StepContext& step) const override { return settings_.momentum.at(step); }

 private:
  DinoSettings settings_;
  std::vector<std::string> global_views_, local_views_;
  std::shared_ptr<DinoHead> head_;
  std::shared_ptr<DinoLoss> loss_;
};

/// DINO with the defaults of SILC (Naeem et al. 2023), TIPS (Maninis et al. 2024) and SigLIP 2 (Tschannen et al. 2025), which train
/// DINO together with an image-text contrast. The teacher sees one large crop, the student only small crops.
struct SelfDistillationSettings : DinoSettings {
  SelfDistillationSettings() {
    global_crops = 1;
    student_global_crops = false;
    momentum = kMomentum;
  }
  /// SILC's momentum. It is constant, because a teacher whose momentum rises to 1 would stop learning from the texts.
  static constexpr TeacherMomentum kMomentum = {0.966, 0.966};
};

void fields(auto& v, SelfDistillationSettings& s) {
  fields(v, static_cast<DinoSettings&>(s));
}

}  // namespace tessera
