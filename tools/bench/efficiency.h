#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/models/parameter_count.h"
#include "tools/bench/training_step.h"

namespace tessera::bench {

struct EfficiencySettings {
  std::vector<std::string> configurations;  // recipes or files, as in trainer --config; only their model, objective and optimizer are used
  TrainingStepSettings step;
  bool training = true;  // whether to measure a training step too
  int repeats = 5;
  double time_limit = 30;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// The cost per sample of embedding images or texts with a tower, or of a training step.
struct SampleCost {
  double flops = 0;
  double samples_per_second = 0;
  std::int64_t memory = 0;  // peak bytes of all tensors, including weights, gradients and optimizer state
};

/// The size of one model, and what it costs to embed images, to embed texts, and to train.
struct Efficiency {
  std::string configuration;
  ParameterCount parameters;
  SampleCost image;
  std::optional<SampleCost> text;      // none if the model has no text tower
  std::optional<SampleCost> training;  // none if training was not requested or is not possible
  std::string why_not_trained;         // the reason in one line, if training is not possible
};

struct EfficiencyTable {
  EfficiencySettings settings;
  std::string machine;
  std::vector<Efficiency> models;
};

/// Measures each configuration on random images and texts. Throws UserError for an invalid configuration.
EfficiencyTable measure_efficiency(const EfficiencySettings& settings);

std::string to_markdown(const EfficiencyTable& table);
std::string to_json(const EfficiencyTable& table);

}  // namespace tessera::bench
