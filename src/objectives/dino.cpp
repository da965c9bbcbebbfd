#include <ATen/ATen.h>

#include "src/objectives/common/counted_views.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/dino.h"
#include <tessera/ops/numeric.h>

namespace tessera {

std::optional<config::Problem> validate(const DinoSettings& s) {
  if (s.local_crops > 0 || (s.student_global_crops && s.global_crops > 1)) return std::nullopt;
  return config::Problem{"local_crops", s.student_global_crops
                                            ? "is 0, and a single global crop has no other crop to be compared with: set "
                                              "local_crops, or two global_crops"
                                            : "is 0, and without student_global_crops the student sees no crops"};
}

Dino::Dino(const DinoSettings& settings, const ObjectiveContext& context)
    : settings_(settings),
      global_views_(counted_views("global", settings.global_crops)),
      local_views_(counted_views("local", settings.local_crops)) {
  head_ = register_module("head", std::make_shared<DinoHead>(settings.head, context.embed_dim));
  loss_ = register_module("loss", std::make_shared<DinoLoss>(settings.loss, settings.head.out_dim));
}

Needs Dino::needs() const {
  Needs needs{.images = {}, .texts = {}};
  for (const std::string& view : global_views_) needs.images[view] = {.student = settings_.student_global_crops, .teacher = true};
  for (const std::string& view : local_views_) needs.images[view] = {};
  return needs;
}

double Dino::teacher_momentum(const StepContext& step) const {
  return settings_.momentum.at(step);
}

namespace {

const at::Tensor& global_of(const TowerFeatures& view) {
  if (!view.global.defined()) refuse_missing_feature("dino", "image_global");
  return view.global;
}

}  // namespace

Losses Dino::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  TORCH_CHECK(context.teacher != nullptr, "dino: there is no teacher");
  at::Tensor teacher_logits;  // [global B, K]
  {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> crops;
    for (const std::string& view : global_views_) crops.push_back(global_of(features.teacher_image(view)));
    teacher_logits = static_cast<Dino&>(*context.teacher).head_->forward(at::cat(crops));
  }
  const at::Tensor teacher = loss_->probabilities(teacher_logits, context.epoch);
  if (context.training) loss_->move_center(teacher_logits, context.group);
  teacher_logits.reset();

  std::vector<at::Tensor> crops;
  if (settings_.student_global_crops)
    for (const std::string& view : global_views_) crops.push_back(global_of(features.image(view)));
  for (const std::string& view : local_views_) crops.push_back(global_of(features.image(view)));
  std::vector<at::Tensor> student = head_->bottleneck(at::cat(crops)).chunk(std::ssize(crops));
  if (!settings_.student_global_crops) student.insert(student.begin(), global_views_.size(), at::Tensor());
  const at::Tensor loss = loss_->forward(student, teacher.chunk(settings_.global_crops), head_->last_layer());
  return {loss, {{"teacher_entropy", at::special_entr(teacher).sum(1).mean()}}, {}};
}

}  // namespace tessera
