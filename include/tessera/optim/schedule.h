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
  std::optional<double> weight_decay_end;
  std::array<double, 2> part = {0.0, 1.0};
};

template <class Visitor>
void fields(Visitor& v, ScheduleSettings& s) {
  v("schedule", s.schedule, "shape after the warm-up; constant stays at the peak",
    config::one_of({"cosine", "linear", "constant"}));
  v("min_lr", s.min_lr, "learning rate at the end (cosine, linear)", config::at_least(0));
  v("warmup_steps", s.warmup_steps, "steps of linear growth to the peak; part of the run's steps", config::at_least(0));
  v("warmup_share", s.warmup_share, "the same as a share of the run's steps, in place of warmup_steps",
    config::in_range(0, 1));
  v("warmup_lr", s.warmup_lr,
    "learning rate of the first of these steps (DINO: 0), the last one having the peak; null: the growth is from 0, "
    "which "
    "no step has",
    config::at_least(0));
  v("weight_decay_end", s.weight_decay_end,
    "weight decay at the end of the run, reached from the optimizer's by half a cosine; null: it stays the same",
    config::at_least(0));
  v("part", s.part,
    "[from, to]: the run is this part of a longer one, as shares of its steps; a stage of [0.8, 1] goes on where one of "
    "[0, 0.8] ends",
    config::in_range(0, 1));
}

/// One of the two ways to give the warm-up, and a part that is not empty.
std::optional<config::Problem> validate(const ScheduleSettings& settings);

/// Steps of warm-up of a run: warmup_steps, or warmup_share of total_steps, rounded to the nearest. Of a run that is part of a
/// longer one they are those of the longer one that fall into it.
std::int64_t warmup_steps_of(const ScheduleSettings& settings, std::int64_t total_steps);

/// Learning rate of update `step` (0 = first): lr (step + 1) / warmup during the warm-up, or with warmup_lr numpy's
/// linspace(warmup_lr, lr, warmup); then the schedule's shape from lr, once more, down to min_lr at total_steps, and that
/// value past the end. Where the run is a part of a longer one (`part`), `step` and `total_steps` are the run's own, and the
/// schedule is the longer one's.
double learning_rate_at(std::int64_t step, const ScheduleSettings& settings, double lr, std::int64_t total_steps);

/// Weight decay of update `step` (0 = first): half a cosine over the whole run, warm-up included, from weight_decay down
/// or up to weight_decay_end at total_steps (Caron et al. 2021, DINO), and that value past the end; weight_decay for
/// good where the settings name no end.
double weight_decay_at(std::int64_t step, const ScheduleSettings& settings, double weight_decay,
                       std::int64_t total_steps);

}  // namespace tessera
