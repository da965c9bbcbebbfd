#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/common/counted_views.h"
#include "src/objectives/dino.h"
#include <tessera/models/tower.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

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
  v("crops", s.crops, "number of these crops", config::in_range(1, 100));
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

std::optional<config::Problem> validate(const MaskedPredictionSettings& s) {
  if (s.view.empty()) return config::Problem{"view", "is empty: name the crops"};
  if (s.share > 0) return std::nullopt;
  return config::Problem{"share", "is 0: no patch is hidden, and the student has nothing to predict"};
}

/// Masked image modeling with a teacher (iBOT, Zhou et al. 2022, eq. 2; TIPS, Maninis et al. 2024; SigLIP 2). The student sees a
/// crop with a share of its patches replaced by the mask token; the teacher, a moving average of the student, sees the whole crop.
/// The student predicts the teacher's output for each hidden patch; the loss is the mean over the hidden patches of
/// H(softmax((teacher - center) / teacher_temperature), softmax(student / student_temperature)). DINO's head `head.*` (DinoHead) is
/// applied to the image encoder's tokens after the encoder's final norm. The buffer `loss.center` (DinoLoss) is not shared with the
/// objective dino. Like dino, it also logs the term `teacher_entropy`. The image encoder needs a mask token (vit, `mask_token: true`).
class MaskedPrediction : public Objective {
 public:
  /// Throws c10::Error if the context does not provide the image encoder's width.
  MaskedPrediction(const MaskedPredictionSettings& settings, const ObjectiveContext& context)
      : settings_(settings), views_(counted_views(settings.view, settings.crops)) {
    TORCH_CHECK(context.image_width > 0, "masked_prediction: the width of the image encoder is unknown");
    head_ = register_module("head", std::make_shared<DinoHead>(settings.head, context.image_width));
    loss_ = register_module("loss", std::make_shared<DinoLoss>(settings.loss, settings.head.out_dim));
  }

  Needs needs() const override {
    Needs needs{.images = {}, .texts = {}};
    for (const std::string& view : views_)
      needs.images[view] = {.encoder_tokens = true,
                            .hidden = {.share = settings_.share, .blocks = settings_.shape == "blocks"},
                            .teacher = true,
                            .extras = {{"hidden", {[](const TowerInput& input, const Encoded&) { return input.hidden; }}}}};
    return needs;
  }

  /// Throws c10::Error if the run keeps no teacher.
  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    TORCH_CHECK(context.teacher != nullptr, "masked_prediction: there is no teacher");
    at::Tensor goals, goal_layer;  // from the teacher: [R, bottleneck_dim], [K, bottleneck_dim]
    {
      const at::NoGradGuard no_grad;
      DinoHead& head = *static_cast<MaskedPrediction&>(*context.teacher).head_;
      goals = head.bottleneck(compared_rows(features, /*of_teacher=*/true));
      goal_layer = head.last_layer();
    }
    const at::Tensor student = head_->bottleneck(compared_rows(features, /*of_teacher=*/false));
    const DinoLoss::Rows rows =
        loss_->of_rows(student, head_->last_layer(), goals, goal_layer, context.epoch, settings_.chunk);
    // The last layer is linear, so the mean of the logits equals the logits of the mean input.
    if (context.training) loss_->move_center(at::linear(goals.mean(0, /*keepdim=*/true), goal_layer), context.group);
    return {rows.losses.mean(), {{"teacher_entropy", rows.entropies.mean()}}, {}};
  }

  bool follows_step() const override { return true; }
  double teacher_momentum(const StepContext& step) const override { return settings_.momentum.at(step); }

 private:
  /// Returns the student's or the teacher's tokens that the loss compares, for all crops: [R, w].
  at::Tensor compared_rows(const Features& features, bool of_teacher) const {
    std::vector<at::Tensor> rows;
    for (const std::string& view : views_) {
      const at::Tensor& hidden = features.image(view).extras.at("hidden");
      const at::Tensor& tokens = (of_teacher ? features.teacher_image(view) : features.image(view)).encoder_tokens;
      TORCH_CHECK(hidden.defined() && tokens.defined() && hidden.sizes() == tokens.sizes().slice(0, 2),
                  "masked_prediction: the tokens of view ", view, " or the mask of hidden tokens are missing");
      rows.push_back(settings_.all_patches ? tokens.flatten(0, 1) : tokens.flatten(0, 1).index({hidden.flatten()}));
    }
    return at::cat(rows);
  }

  MaskedPredictionSettings settings_;
  std::vector<std::string> views_;
  std::shared_ptr<DinoHead> head_;
  std::shared_ptr<DinoLoss> loss_;
};

}  // namespace

void add_masked_prediction(ObjectiveRegistry& list) {
  add_objective<MaskedPrediction, MaskedPredictionSettings>(list, "masked_prediction",
                                                            "predicts the teacher's output for hidden patches (iBOT, TIPS, SigLIP 2)");
}

}  // namespace tessera
