#include <algorithm>
#include <cmath>

#include "src/base/half_cosine.h"
#include <tessera/optim/schedule.h>

namespace tessera {

namespace {

// The number of a step and the total number of steps. If the run is part of a longer run, both count the steps of the
// longer run.
struct Place {
  std::int64_t step, total;
};

Place in_whole(std::int64_t step, const ScheduleSettings& settings, std::int64_t total_steps) {
  const auto [from, to] = settings.part;
  const double whole = static_cast<double>(total_steps) / (to - from);
  return {std::llround(from * whole) + step, std::llround(whole)};
}

std::int64_t whole_warmup(const ScheduleSettings& settings, std::int64_t whole) {
  if (!settings.warmup_share) return std::min(settings.warmup_steps, whole);
  return std::llround(*settings.warmup_share * static_cast<double>(whole));
}

}  // namespace

std::optional<config::Problem> validate(const ScheduleSettings& settings) {
  if (settings.part[0] >= settings.part[1]) return config::Problem{"part", "must be [from, to] with from less than to"};
  if (settings.cooldown_share > 0 && settings.schedule != "constant")
    return config::Problem{"cooldown_share", "applies only to schedule: constant; " + settings.schedule + " decays throughout"};
  if (!settings.warmup_share || settings.warmup_steps == 0) return std::nullopt;
  return config::Problem{"warmup_share", "give warmup_steps or warmup_share, not both"};
}

std::int64_t warmup_steps_of(const ScheduleSettings& settings, std::int64_t total_steps) {
  const Place first = in_whole(0, settings, total_steps);
  return std::max<std::int64_t>(0, whole_warmup(settings, first.total) - first.step);
}

double learning_rate_at(std::int64_t run_step, const ScheduleSettings& settings, double lr, std::int64_t run_steps) {
  const auto [step, total_steps] = in_whole(run_step, settings, run_steps);
  const std::int64_t warmup = whole_warmup(settings, total_steps);
  if (step < warmup && settings.warmup_lr) {
    const double share = warmup > 1 ? static_cast<double>(step) / static_cast<double>(warmup - 1) : 0.0;
    return *settings.warmup_lr + (lr - *settings.warmup_lr) * share;
  }
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const bool constant = settings.schedule == "constant";
  const std::int64_t cooldown = std::llround(settings.cooldown_share * static_cast<double>(total_steps));
  const std::int64_t falls_from = constant ? total_steps - cooldown : warmup;
  if (constant && (cooldown == 0 || step < falls_from)) return lr;
  const std::int64_t done = step - falls_from, steps = total_steps - falls_from;
  if (settings.schedule == "cosine") return half_cosine(done, steps, lr, settings.min_lr);
  const double x = done < steps ? static_cast<double>(done) / static_cast<double>(steps) : 1.0;
  return settings.min_lr + (lr - settings.min_lr) * std::pow(1.0 - x, constant ? settings.cooldown_power : 1.0);
}

double weight_decay_at(std::int64_t run_step, const ScheduleSettings& settings, double weight_decay,
                       std::int64_t run_steps) {
  if (!settings.weight_decay_end) return weight_decay;
  const auto [step, total_steps] = in_whole(run_step, settings, run_steps);
  return half_cosine(step, total_steps, weight_decay, *settings.weight_decay_end);
}

}  // namespace tessera
