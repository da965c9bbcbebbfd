#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// Learning rate and weight decay over the run.
struct ScheduleSettings {
  std::string schedule = "cosine";
  double min_lr = 0.0;
  std::int64_t warmup_steps = 0;
  std::optional<double> warmup_share;
  std::optional<double> warmup_lr;
  double cooldown_share = 0.0;
  double cooldown_power = 1.0;
  std::optional<double> weight_decay_end;
  std::array<double, 2> part = {0.0, 1.0};
};

template <class Visitor>
void fields(Visitor& v, ScheduleSettings& s) {
  v("schedule", s.schedule, "shape after the warm-up; constant stays at the peak until the cooldown",
    config::one_of({"cosine", "linear", "constant"}));
  v("min_lr", s.min_lr, "learning rate at the end (cosine, linear, and constant with a cooldown)", config::at_least(0));
  v("warmup_steps", s.warmup_steps, "steps of linear growth to the peak; part of the run's steps", config::at_least(0));
  v("warmup_share", s.warmup_share, "the same as a share of the run's steps, in place of warmup_steps",
    config::in_range(0, 1));
  v("warmup_lr", s.warmup_lr,
    "learning rate of the first of these steps (DINO: 0), the last one having the peak; null: the growth is from 0, "
    "which "
    "no step has",
    config::at_least(0));
  v("cooldown_share", s.cooldown_share,
    "constant: last share of the run's steps, in which the learning rate falls to min_lr; 0: none", config::in_range(0, 1));
  v("cooldown_power", s.cooldown_power,
    "shape of that fall: what is left of the cooldown to this power (1: a straight line)", config::above(0));
  v("weight_decay_end", s.weight_decay_end,
    "weight decay at the end of the run, reached from the optimizer's by half a cosine; null: it stays the same",
    config::at_least(0));
  v("part", s.part,
    "[from, to]: the run is this part of a longer one, as shares of its steps; a stage of [0.8, 1] goes on where one of "
    "[0, 0.8] ends",
    config::in_range(0, 1));
}

/// One of the two ways to give the warm-up, a part that is not empty, and a cooldown of the constant schedule alone.
std::optional<config::Problem> validate(const ScheduleSettings& settings);

/// Steps of warm-up of a run: warmup_steps, or warmup_share of total_steps, rounded to the nearest. Of a run that is part of a
/// longer one they are those of the longer one that fall into it.
std::int64_t warmup_steps_of(const ScheduleSettings& settings, std::int64_t total_steps);

/// Learning rate of update `step` (0 = first): lr (step + 1) / warmup during the warm-up, or with warmup_lr numpy's
/// linspace(warmup_lr, lr, warmup); then the schedule's shape from lr, once more, down to min_lr at total_steps, and that
/// value past the end. The constant schedule is lr until the cooldown, whose step e of n has min_lr + (lr - min_lr)
/// (1 - e / n)^cooldown_power. Where the run is a part of a longer one (`part`), `step` and `total_steps` are the run's own, and the
/// schedule is the longer one's.
double learning_rate_at(std::int64_t step, const ScheduleSettings& settings, double lr, std::int64_t total_steps);

/// Weight decay of update `step` (0 = first): half a cosine over the whole run, warm-up included, from weight_decay down
/// or up to weight_decay_end at total_steps (Caron et al. 2021, DINO), and that value past the end; weight_decay for
/// good where the settings name no end.
double weight_decay_at(std::int64_t step, const ScheduleSettings& settings, double weight_decay,
                       std::int64_t total_steps);

}  // namespace tessera
