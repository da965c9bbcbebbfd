#include "src/objectives/dino.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/objectives/common/counted_views.h"
#include "src/objectives/pairs/features.h"
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {

DinoHead::DinoHead(const DinoHeadSettings& settings, std::int64_t width) {
  for (std::int64_t i = 0; i < settings.layers; ++i) {
    const std::int64_t in = i == 0 ? width : settings.hidden_dim,
                       out = i + 1 == settings.layers ? settings.bottleneck_dim : settings.hidden_dim;
    mlp_.emplace_back(in, out);
    torch::nn::init::normal_(mlp_.back()->weight, 0.0, 0.02);
    torch::nn::init::zeros_(mlp_.back()->bias);
  }
  if (settings.layers == 1) {
    register_module("mlp", mlp_.front());
  } else {
    const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>("mlp"));
    for (std::size_t i = 0; i < mlp_.size(); ++i) mlp->register_module(std::to_string(2 * i), mlp_[i]);
  }
  const auto last = register_module("last_layer", std::make_shared<torch::nn::Module>("last_layer"));
  weight_g_ = last->register_parameter("weight_g", at::ones({settings.out_dim, 1}),
                                       /*requires_grad=*/!settings.norm_last_layer);
  const double bound = 1.0 / std::sqrt(static_cast<double>(settings.bottleneck_dim));
  weight_v_ = last->register_parameter("weight_v",
                                       at::empty({settings.out_dim, settings.bottleneck_dim}).uniform_(-bound, bound));
}

at::Tensor DinoHead::bottleneck(const at::Tensor& input) {
  at::Tensor x = mlp_.front()(to_compute(input));
  for (std::size_t i = 1; i < mlp_.size(); ++i) x = mlp_[i](at::gelu(x));
  return unit_rows(x);
}

at::Tensor DinoHead::last_layer() const {
  return weight_v_ * (weight_g_ / weight_v_.norm(2, 1, /*keepdim=*/true));
}

at::Tensor DinoHead::forward(const at::Tensor& x) {
  return at::linear(bottleneck(x), last_layer());
}

namespace {

// Returns, for each of `crops` crops, the teacher's probabilities summed over all global crops except the crop itself. Cross-entropy is
// linear in the targets, so one pass over a crop's logits computes the sum of its losses against all these global crops. All local crops
// share one tensor, because no global crop is left out for them.
std::vector<at::Tensor> targets_of_crops(const std::vector<at::Tensor>& teacher, std::size_t crops) {
  const auto sum_without = [&](std::size_t left_out) {
    at::Tensor sum;
    for (std::size_t i = 0; i < teacher.size(); ++i)
      if (i != left_out) sum = sum.defined() ? sum + teacher[i] : teacher[i];
    return sum;  // an undefined tensor if crop `left_out` is the only global crop
  };
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < std::min(crops, teacher.size()); ++i) out.push_back(sum_without(i));
  if (crops > teacher.size()) out.resize(crops, sum_without(teacher.size()));
  return out;
}

at::Tensor probabilities_around(const at::Tensor& center, const at::Tensor& teacher_logits, std::int64_t epoch,
                                const DinoLossSettings& settings) {
  const at::NoGradGuard no_grad;
  return ((to_compute(teacher_logits) - center) / teacher_temperature_at(epoch, settings)).softmax(1);
}

// Returns the cross-entropies [R] of logits [R, K] with targets [R, K].
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const DinoLossSettings& settings) {
  return -(targets * (to_compute(logits) / settings.student_temperature).log_softmax(1)).sum(1);
}

}  // namespace

double teacher_temperature_at(std::int64_t epoch, const DinoLossSettings& s) {
  const std::int64_t warmup = s.warmup_teacher_temperature_epochs;
  if (epoch >= warmup) return s.teacher_temperature;
  const double share = warmup > 1 ? static_cast<double>(epoch) / static_cast<double>(warmup - 1) : 0.0;
  return s.warmup_teacher_temperature + (s.teacher_temperature - s.warmup_teacher_temperature) * share;
}

DinoLoss::DinoLoss(const DinoLossSettings& settings, std::int64_t out_dim) : settings_(settings) {
  center_ = register_buffer("center", at::zeros({1, out_dim}));
}

at::Tensor DinoLoss::probabilities(const at::Tensor& teacher_logits, std::int64_t epoch) const {
  return probabilities_around(center_, teacher_logits, epoch, settings_);
}

at::Tensor DinoLoss::forward(const std::vector<at::Tensor>& student, const std::vector<at::Tensor>& teacher,
                             const at::Tensor& last_layer) const {
  const std::vector<at::Tensor> targets = targets_of_crops(teacher, student.size());
  const auto of_logits = [settings = settings_](const std::vector<at::Tensor>& tile) {
    return cross_entropy(tile[0], tile[1], settings).mean();
  };
  const auto of_bottleneck = [settings = settings_](const std::vector<at::Tensor>& tile) {
    return cross_entropy(at::linear(tile[0], tile[2]), tile[1], settings).mean();
  };
  at::Tensor sum;
  std::size_t pairs = 0;
  for (std::size_t i = 0; i < student.size(); ++i) {
    if (!student[i].defined() || !targets[i].defined()) continue;
    const at::Tensor loss = last_layer.defined() ? checkpointed(of_bottleneck, {student[i], targets[i], last_layer})
                                                 : of_logits({student[i], targets[i]});
    sum = sum.defined() ? sum + loss : loss;
    pairs += i < teacher.size() ? teacher.size() - 1 : teacher.size();
  }
  TORCH_CHECK(pairs > 0, "DinoLoss: no crop of the student has a global crop to be compared with");
  return sum / static_cast<double>(pairs);
}

DinoLoss::Rows DinoLoss::of_rows(const at::Tensor& student, const at::Tensor& last_layer, const at::Tensor& goals,
                                 const at::Tensor& goal_layer, std::int64_t epoch,
                                 std::optional<std::int64_t> chunk) const {
  // The center is cloned, because move_center() changes it before the backward pass recomputes the body.
  const auto body = [settings = settings_, center = center_.clone(), epoch](const std::vector<at::Tensor>& tile) {
    const at::Tensor targets = probabilities_around(center, at::linear(tile[1], tile[3]), epoch, settings);
    return at::stack({cross_entropy(at::linear(tile[0], tile[2]), targets, settings), at::special_entr(targets).sum(1)}, 1);
  };
  const at::Tensor both = map_tiles(body, {student, goals.detach()}, {last_layer, goal_layer.detach()}, chunk);
  return {both.select(1, 0), both.select(1, 1).detach()};
}

void DinoLoss::move_center(const at::Tensor& teacher_logits, const ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  at::Tensor mean = to_compute(teacher_logits).mean(0, /*keepdim=*/true);
  group.all_reduce(mean);
  center_.lerp_(mean / group.size(), 1 - settings_.center_momentum);
}

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
