#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/objectives/dino_head.h>
#include <tessera/objectives/dino_loss.h>
#include <tessera/objectives/objective.h>
#include <tessera/objectives/self_distillation.h>

namespace tessera {

struct MaskedPredictionSettings {
  std::string view = "global";
  std::int64_t crops = 1;
  double share = 0.5;
  std::string shape = "patches";
  bool all_patches = false;
  std::optional<std::int64_t> chunk = 4096;
  DinoHeadSettings head;
  DinoLossSettings loss;
  TeacherMomentum momentum = SelfDistillationSettings::kMomentum;
};

template <class Visitor>
void fields(Visitor& v, MaskedPredictionSettings& s) {
  v("view", s.view,
    "the crops whose patches are predicted: the image views VIEW_0, VIEW_1, ...; no other objective may show them to the model");
  v("crops", s.crops, "how many there are",
    config::in_range(1, 100));
  v("share", s.share, "share of a crop's patches that the student does not see", config::in_half_open(0, 1));
  v("shape", s.shape, "which patches are hidden: patches, drawn one by one (SigLIP 2); blocks, overlapping rectangles (iBOT)",
    config::one_of({"patches", "blocks"}));
  v("all_patches", s.all_patches, "the student predicts the patches that it sees, too (TIPSv2); false: the hidden ones alone");
  v("chunk", s.chunk,
    "patches whose distributions over out_dim are in memory at a time, forward and backward; null: all of the batch",
    config::at_least(1));
  fields(v, s.head);
  fields(v, s.loss);
  fields(v, s.momentum);
}
std::optional<config::Problem> validate(const MaskedPredictionSettings& settings);

/// Masked image modeling with a teacher (iBOT, Zhou et al. 2022, eq. 2; TIPS, Maninis et al. 2024; SigLIP 2): the student sees
/// a crop with a share of its patches replaced by the mask token, the teacher, a moving average of it, sees the whole crop, and
/// the student predicts what the teacher makes of each hidden patch. loss = the mean over the hidden patches of
/// H(softmax((teacher - center) / teacher_temperature), softmax(student / student_temperature)), with DINO's head on the
/// image encoder's tokens behind its final norm: `head.*` (DinoHead) and the buffer `loss.center` (DinoLoss), which is the
/// patches' own. Term
/// `teacher_entropy`, as DINO's.
/// The image encoder needs a mask token (vit, `mask_token: true`).
class MaskedPrediction : public Objective {
 public:
  /// Throws c10::Error where the context does not know the image encoder's width.
  MaskedPrediction(const MaskedPredictionSettings& settings, const ObjectiveContext& context);
  /// Throws c10::Error where the run keeps no teacher.
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  bool follows_step() const override { return true; }
  double teacher_momentum(const StepContext& step) const override;

 private:
  /// The rows of all crops that are compared, [R, w], of the student or of the teacher.
  at::Tensor compared_rows(const Features& features, bool of_teacher) const;

  MaskedPredictionSettings settings_;
  std::vector<std::string> views_;
  std::shared_ptr<DinoHead> head_;
  std::shared_ptr<DinoLoss> loss_;
};

}  // namespace tessera
