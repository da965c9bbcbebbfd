#include <ATen/ATen.h>

#include "src/objectives/dino_loss.h"
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {
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

}  // namespace tessera
