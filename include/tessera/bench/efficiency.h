#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/bench/training_step.h>
#include <tessera/models/parameter_count.h>

namespace tessera::bench {

struct EfficiencySettings {
  std::vector<std::string> configurations;  // of trainer: their sections model, objective and optimizer count
  TrainingStepSettings step;
  bool training = true;  // a step of training, too
  int repeats = 5;
  double time_limit = 30;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// What a tower or a step takes, by sample.
struct SampleCost {
  double flops = 0;
  double samples_per_second = 0;
  std::int64_t memory = 0;  // bytes of tensors at the peak, weights, gradients and optimizer state included
};

/// One model: what it holds, what it takes to embed pictures and texts, and what to train it.
struct Efficiency {
  std::string configuration;
  ParameterCount parameters;
  SampleCost image;
  std::optional<SampleCost> text;      // none: it has no text tower
  std::optional<SampleCost> training;  // none: not asked for, or it cannot be measured
  std::string why_not_trained;         // one line, where it cannot
};

struct EfficiencyTable {
  EfficiencySettings settings;
  std::string machine;
  std::vector<Efficiency> models;
};

/// Measures each configuration on random pictures and texts. Throws UserError for what is no configuration.
EfficiencyTable measure_efficiency(const EfficiencySettings& settings);

std::string to_markdown(const EfficiencyTable& table);
std::string to_json(const EfficiencyTable& table);

}  // namespace tessera::bench
