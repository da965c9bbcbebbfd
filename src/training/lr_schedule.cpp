#include <algorithm>
#include <cmath>
#include <numbers>

#include <tessera/training/lr_schedule.h>

namespace tessera {

double learning_rate_at(std::int64_t step, const ScheduleSettings& settings, double lr, std::int64_t total_steps) {
  const std::int64_t warmup = settings.warmup_steps;
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (settings.schedule == "constant") return lr;
  double x = 1.0;
  if (total_steps > warmup)
    x = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup));
  const double share = settings.schedule == "cosine" ? (1.0 + std::cos(std::numbers::pi * x)) / 2.0 : 1.0 - x;
  return settings.min_lr + (lr - settings.min_lr) * share;
}

}  // namespace tessera
