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
  v("schedule", s.schedule, "shape after the warm-up; constant stays at the peak until the cooldown starts",
    config::one_of({"cosine", "linear", "constant"}));
  v("min_lr", s.min_lr, "learning rate at the end (cosine, linear, and constant with a cooldown)", config::at_least(0));
  v("warmup_steps", s.warmup_steps, "steps of linear increase to the peak; they count as part of the run", config::at_least(0));
  v("warmup_share", s.warmup_share, "the warm-up as a share of the run's steps, instead of warmup_steps",
    config::in_range(0, 1));
  v("warmup_lr", s.warmup_lr,
    "learning rate of the first warm-up step (DINO: 0); the last one has the peak. null: step i of w (from 0) has "
    "(i + 1) / w of the peak",
    config::at_least(0));
  v("cooldown_share", s.cooldown_share,
    "constant: final share of the run's steps, in which the learning rate decays to min_lr; 0: none", config::in_range(0, 1));
  v("cooldown_power", s.cooldown_power,
    "shape of that decay: the remaining share of the cooldown to this power (1: linear)", config::above(0));
  v("weight_decay_end", s.weight_decay_end,
    "weight decay at the end of the run, reached from the optimizer's by half a cosine; null: it stays constant",
    config::at_least(0));
  v("part", s.part,
    "[from, to]: the run is this part of a longer schedule, as shares of its steps; a stage with [0.8, 1] continues "
    "where one with [0, 0.8] ends",
    config::in_range(0, 1));
}

/// Rejects warmup_steps together with warmup_share, an empty range in `part`, and a cooldown with any schedule except constant.
std::optional<config::Problem> validate(const ScheduleSettings& settings);

/// Returns a run's number of warm-up steps: warmup_steps, or warmup_share of total_steps, rounded to the nearest integer. For a run that is
/// part of a longer one (`part`), returns how many of the longer run's warm-up steps it contains.
std::int64_t warmup_steps_of(const ScheduleSettings& settings, std::int64_t total_steps);

/// Returns the learning rate of update `step` (0 = first). During the warm-up it is lr (step + 1) / warmup or, with
/// warmup_lr, numpy's linspace(warmup_lr, lr, warmup). After the warm-up, the schedule's shape starts at lr (so the
/// first step after the warm-up has lr again) and falls to min_lr at total_steps, where it stays. The constant schedule
/// is lr until the cooldown; step e (0 = first) of the cooldown's n steps has the learning rate
/// min_lr + (lr - min_lr) (1 - e / n)^cooldown_power. For a run that is part of a longer one (`part`), `step` and `total_steps` are the
/// run's own, and the schedule is the longer run's.
double learning_rate_at(std::int64_t step, const ScheduleSettings& settings, double lr, std::int64_t total_steps);

/// Returns the weight decay of update `step` (0 is the first). It follows half a cosine over the whole run, warm-up included, from
/// weight_decay to weight_decay_end at total_steps (Caron et al. 2021, DINO), and stays there. Without weight_decay_end it is always
/// weight_decay.
double weight_decay_at(std::int64_t step, const ScheduleSettings& settings, double weight_decay,
                       std::int64_t total_steps);

}  // namespace tessera
