#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/measure/pass_cost.h"
#include <tessera/models/dual_encoder.h>

namespace tessera::bench {

/// The factor of a frozen teacher's cosines in measurements.
inline constexpr double kTeacherScale = 100;

/// An objective to measure and its name in the tables.
struct NamedObjective {
  std::string label;
  config::ModuleSettings choice;
};

/// Parses a registered name, `clip_filip` (CLIP + FILIP), or YAML such as `{name: gloria, chunk: 16}`. Throws UserError for unknown
/// names and settings.
NamedObjective parse_objective(const std::string& text);

/// Reads the `model` section of a configuration file. Throws UserError.
ModelSettings load_model_settings(const std::string& path);

struct LossBenchSettings {
  std::vector<NamedObjective> objectives;
  std::vector<std::int64_t> batch_sizes;  // pairs in one process, ascending
  std::int64_t patches = 196;             // P, the number of patches; the default is that of ViT-B/16 at 224 pixels
  std::int64_t tokens = 55;               // L, the number of tokens, all of them real; the default is SPARC's text length
  std::int64_t width = 512;               // D
  std::int64_t captions = 8;              // K, the number of texts per image, for objectives that use several
  at::Device device{at::kCPU};
  at::ScalarType dtype = at::kFloat;         // type of the features: float32 or bfloat16
  int repeats = 5;                           // maximum number of timed runs
  double time_limit = 60;                    // maximum number of seconds for one objective at one batch size
  std::optional<std::int64_t> memory_limit;  // limit in bytes, used only on a CPU; null means nine tenths of the free memory
  std::optional<ModelSettings> model;        // the towers of the update step; null: only the loss is measured
  std::function<void(const std::string&)> progress;  // called with one line per measurement; may be empty
};

enum class Outcome { measured, does_not_fit, takes_too_long };

/// The cost of one objective's forward and backward pass at one batch size. The cost of computing the features is not included.
struct LossCost {
  std::string objective;
  std::int64_t batch_size = 0;
  Outcome outcome = Outcome::measured;
  double flops = 0;         // as counted by FlopCounter
  std::int64_t memory = 0;  // peak bytes, with the gradients of the features but without the features
  double seconds = 0;       // median
};

/// The cost of a model without the loss.
struct ModelCost {
  std::string objective;
  std::int64_t parameters = 0;
  std::int64_t state = 0;  // bytes of weights, gradients and AdamW's two moments
  PassCost towers{1};
};

struct LossBench {
  LossBenchSettings settings;
  std::string machine;
  std::vector<LossCost> costs;    // ordered by objective, then by batch size
  std::vector<ModelCost> models;  // one per objective; empty without a model

  const LossCost* find(const std::string& objective, std::int64_t batch_size) const;
  const ModelCost* find_model(const std::string& objective) const;
};

/// step_memory() returns the peak bytes of one update step: the towers' state and activations plus the peak of the loss. step_flops()
/// returns the step's FLOPs.
double step_memory(const ModelCost& model, const LossCost& loss);
double step_flops(const ModelCost& model, const LossCost& loss);

/// Returns a function that runs the measured forward and backward pass of an objective on random features.
std::function<void()> loss_step(const NamedObjective& objective, std::int64_t batch_size,
                                const LossBenchSettings& settings);

/// Measures every objective at every batch size. A measurement that would exceed the memory or time limit is not an error; it is marked in
/// the result. With a model, the features have the model's shapes.
LossBench measure_losses(LossBenchSettings settings);

/// Returns Markdown tables with one row per objective and one column per batch size, like SPARC's Table 11. A sentence below the tables
/// gives SPARC's additional FLOPs and memory over CLIP, as numbers and in percent.
std::string to_markdown(const LossBench& bench);
std::string to_json(const LossBench& bench);
/// Returns a page with charts of the costs over the batch size, with two logarithmic axes, like SPARC's Figure 4.
std::string to_page(const LossBench& bench);

}  // namespace tessera::bench
