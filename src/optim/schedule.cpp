#include <algorithm>
#include <cmath>
#include <numbers>

#include <tessera/optim/schedule.h>

namespace tessera {
namespace {

// 1 at x = 0, 0 at x = 1.
double half_cosine(double x) {
  return (1.0 + std::cos(std::numbers::pi * x)) / 2.0;
}

}  // namespace

std::optional<config::Problem> validate(const ScheduleSettings& settings) {
  if (!settings.warmup_share || settings.warmup_steps == 0) return std::nullopt;
  return config::Problem{"warmup_share", "give warmup_steps or warmup_share, not both"};
}

std::int64_t warmup_steps_of(const ScheduleSettings& settings, std::int64_t total_steps) {
  if (!settings.warmup_share) return settings.warmup_steps;
  return std::llround(*settings.warmup_share * static_cast<double>(total_steps));
}

double learning_rate_at(std::int64_t step, const ScheduleSettings& settings, double lr, std::int64_t total_steps) {
  const std::int64_t warmup = warmup_steps_of(settings, total_steps);
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (settings.schedule == "constant") return lr;
  double x = 1.0;
  if (total_steps > warmup)
    x = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup));
  const double share = settings.schedule == "cosine" ? half_cosine(x) : 1.0 - x;
  return settings.min_lr + (lr - settings.min_lr) * share;
}

double weight_decay_at(std::int64_t step, const ScheduleSettings& settings, double weight_decay,
                       std::int64_t total_steps) {
  if (!settings.weight_decay_end) return weight_decay;
  const double end = *settings.weight_decay_end;
  const double x = std::min(1.0, static_cast<double>(step) / static_cast<double>(total_steps));
  return end + (weight_decay - end) * half_cosine(x);
}

}  // namespace tessera
