#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/objectives/dino.h"
#include <tessera/objectives/objective.h>

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

void fields(auto& v, MaskedPredictionSettings& s) {
  v("view", s.view,
    "name of the crops whose patches are predicted; they are the image views VIEW_0, VIEW_1, ...; no other objective may show these "
    "views to the model");
  v("crops", s.crops, "number of these crops",
    config::in_range(1, 100));
  v("share", s.share, "share of a crop's patches that the student does not see", config::in_half_open(0, 1));
  v("shape", s.shape, "how the hidden patches are chosen; patches: drawn one by one (SigLIP 2); blocks: as overlapping rectangles (iBOT)",
    config::one_of({"patches", "blocks"}));
  v("all_patches", s.all_patches, "the student also predicts the patches that it sees (TIPSv2); false: it predicts only the hidden ones");
  v("chunk", s.chunk,
    "number of patches whose distributions over out_dim are in memory at a time, forward and backward; null: all patches of the batch",
    config::at_least(1));
  fields(v, s.head);
  fields(v, s.loss);
  fields(v, s.momentum);
}
std::optional<config::Problem> validate(const MaskedPredictionSettings& settings);

/// Masked image modeling with a teacher (iBOT, Zhou et al. 2022, eq. 2; TIPS, Maninis et al. 2024; SigLIP 2). The student sees a
/// crop with a share of its patches replaced by the mask token; the teacher, a moving average of the student, sees the whole crop.
/// The student predicts the teacher's output for each hidden patch; the loss is the mean over the hidden patches of
/// H(softmax((teacher - center) / teacher_temperature), softmax(student / student_temperature)). DINO's head `head.*` (DinoHead) is
/// applied to the image encoder's tokens after the encoder's final norm. The buffer `loss.center` (DinoLoss) is not shared with the
/// objective dino. Like dino, it also logs the term `teacher_entropy`. The image encoder needs a mask token (vit, `mask_token: true`).
class MaskedPrediction : public Objective {
 public:
  /// Throws c10::Error if the context does not provide the image encoder's width.
  MaskedPrediction(const MaskedPredictionSettings& settings, const ObjectiveContext& context);
  /// Throws c10::Error if the run keeps no teacher.
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  bool follows_step() const override { return true; }
  double teacher_momentum(const StepContext& step) const override { return settings_.momentum.at(step); }

 private:
  /// Returns the student's or the teacher's tokens that the loss compares, for all crops: [R, w].
  at::Tensor compared_rows(const Features& features, bool of_teacher) const;

  MaskedPredictionSettings settings_;
  std::vector<std::string> views_;
  std::shared_ptr<DinoHead> head_;
  std::shared_ptr<DinoLoss> loss_;
};

}  // namespace tessera
