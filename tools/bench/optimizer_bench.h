#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tessera/models/dual_encoder.h>
#include <tessera/optim/optimizer.h>

namespace tessera::bench {

struct OptimizerCost {
  std::string optimizer;
  std::int64_t tensors = 0, parameters = 0;
  double seconds = 0;  // median time of one step
};

/// Runs steps of an optimizer on a model's parameters, with random gradients.
class OptimizerStep {
 public:
  /// `choice` holds the settings of a configuration's section `optimizer`. Throws UserError if the settings of the model or of the
  /// optimizer are invalid.
  OptimizerStep(const ModelSettings& model, const config::ModuleSettings& choice, const at::Device& device);
  void run() { optimizer_->step(optimizer_->peak_learning_rate()); }
  const Optimizer& optimizer() const { return *optimizer_; }

 private:
  std::shared_ptr<Optimizer> optimizer_;
};

struct OptimizerBenchSettings {
  ModelSettings model;
  std::vector<config::ModuleSettings> optimizers;
  at::Device device{at::kCPU};
  int repeats = 9;
  double time_limit = 20;  // seconds per measurement
};

struct OptimizerBench {
  std::string machine;
  std::vector<OptimizerCost> costs;
};

/// Parses `adamw`, or YAML such as `{name: adamw, update_clipping: true}`. Throws UserError.
config::ModuleSettings parse_optimizer(const std::string& text);

OptimizerBench measure_optimizers(const OptimizerBenchSettings& settings);

std::string to_markdown(const OptimizerBench& bench);
std::string to_json(const OptimizerBench& bench);
/// Returns the names, shapes and weight decays of an optimizer's parameters as JSON.
std::string parameters_json(const Optimizer& optimizer);

}  // namespace tessera::bench
