#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/objectives/dino_head.h"
#include "src/objectives/dino_loss.h"
#include "src/objectives/teacher_momentum.h"
#include <tessera/objectives/objective.h>

namespace tessera {

struct DinoSettings {
  std::int64_t global_crops = 2;
  std::int64_t local_crops = 8;
  bool student_global_crops = true;
  DinoHeadSettings head;
  DinoLossSettings loss;
  TeacherMomentum momentum;
};

template <class Visitor>
void fields(Visitor& v, DinoSettings& s) {
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
  double teacher_momentum(const StepContext& step) const override;

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

template <class Visitor>
void fields(Visitor& v, SelfDistillationSettings& s) {
  fields(v, static_cast<DinoSettings&>(s));
}

}  // namespace tessera
