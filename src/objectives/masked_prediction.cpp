#include <ATen/ATen.h>

#include "src/objectives/common/counted_views.h"
#include "src/objectives/masked_prediction.h"
#include <tessera/models/tower.h>
#include <tessera/ops/numeric.h>

namespace tessera {

std::optional<config::Problem> validate(const MaskedPredictionSettings& s) {
  if (s.view.empty()) return config::Problem{"view", "is empty: name the crops"};
  if (s.share > 0) return std::nullopt;
  return config::Problem{"share", "is 0: no patch is hidden, and the student has nothing to predict"};
}

MaskedPrediction::MaskedPrediction(const MaskedPredictionSettings& settings, const ObjectiveContext& context)
    : settings_(settings), views_(counted_views(settings.view, settings.crops)) {
  TORCH_CHECK(context.image_width > 0, "masked_prediction: the width of the image encoder is unknown");
  head_ = register_module("head", std::make_shared<DinoHead>(settings.head, context.image_width));
  loss_ = register_module("loss", std::make_shared<DinoLoss>(settings.loss, settings.head.out_dim));
}

Needs MaskedPrediction::needs() const {
  Needs needs{.images = {}, .texts = {}};
  for (const std::string& view : views_)
    needs.images[view] = {.encoder_tokens = true,
                          .hidden = {.share = settings_.share, .blocks = settings_.shape == "blocks"},
                          .teacher = true,
                          .extras = {{"hidden", {[](const TowerInput& input, const Encoded&) { return input.hidden; }}}}};
  return needs;
}

at::Tensor MaskedPrediction::compared_rows(const Features& features, bool of_teacher) const {
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

Losses MaskedPrediction::forward(const Features& features, const StepContext& context) {
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

}  // namespace tessera
