#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/ops/tuning.h"

/// Measures the configurations of operators that have several, and writes the table from which programs choose (src/ops/tuning.h).
namespace tessera::bench {

using Tensors = std::vector<at::Tensor>;

/// One problem for which the table needs a choice.
struct TuningCase {
  TuningKey key;
  std::string problem;                      // in words, for messages
  std::vector<std::string> configurations;  // the candidates
  std::function<Tensors()> run;             // runs the pass as training does, and returns its results
  std::function<Tensors()> reference;       // the same results in float64
  double tolerance;                         // the largest error that a configuration may have (relative_error)
  std::string library = {};                 // the library to which the configurations belong (library_versions)
};

/// An operator with configurations, and its cases on a GPU. The cases hold their inputs, so they are made one operator at a time.
struct TunableOperator {
  std::string name;
  std::function<std::vector<TuningCase>(const at::Device& device)> cases;
};

/// All operators that can be tuned. A new one adds its line here and its cases in a file of its own.
std::vector<TunableOperator> tunable_operators();
std::vector<TuningCase> sparsify_group_tuning_cases(const at::Device& device);
std::vector<TuningCase> self_attention_tuning_cases(const at::Device& device);
std::vector<TuningCase> max_similarity_tuning_cases(const at::Device& device);
std::vector<TuningCase> token_max_projection_tuning_cases(const at::Device& device);
std::vector<TuningCase> linear_map_tuning_cases(const at::Device& device);

/// A linear map of `rows` rows in a transformer block.
struct TunedMap {
  std::int64_t rows, in, out;
  bool bias_gradient = false;  // whether the block computes the bias gradient together with that of the weight
};
/// The products of one map in bfloat16: forward, the gradient of its input, and the gradients of its parameters.
std::vector<TuningCase> map_tuning_cases(const TunedMap& map, const at::Device& device);

/// Returns the norm of the difference divided by the norm of the reference, over all tensors; infinity if a shape differs, or if only one
/// side is NaN.
double relative_error(const Tensors& results, const Tensors& reference);

struct TuningCandidate {
  std::string configuration;  // empty for what the operator chooses by itself: its rule, or the table in use
  double seconds = 0;
  double error = 0;    // relative_error()
  std::string reason;  // why the candidate is not considered; empty if it is
  bool wrong = false;  // whether the reason is its error
};

/// What was measured for one problem. The candidates begin with the operator's own choice.
struct TunedCase {
  TuningKey key;
  std::string problem;
  std::vector<TuningCandidate> candidates;

  /// Returns the fastest named candidate whose results are right; null if there is none.
  const TuningCandidate* best() const;
};

/// Returns the seconds that one call takes.
using Timer = std::function<double(const std::function<void()>& call)>;

/// Runs each candidate, compares its results with the reference, and measures it if they agree.
TunedCase tune(const TuningCase& tuned, const Timer& timer);

struct TuneSettings {
  at::Device device{at::kCUDA};
  std::vector<std::string> operators;  // empty for all
  int repeats = 9;
  double time_limit = 1;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

struct TuneBench {
  TuningTable table;
  std::vector<TunedCase> cases;

  /// Adds the best candidate of a case to the table.
  void add(const TuningCase& tuned, TunedCase measured);
  /// Whether the results of a configuration were wrong.
  bool any_wrong() const;
};

/// Measures all cases of the operators. Throws UserError for an unknown operator, and if the device is not a GPU.
TuneBench measure_tuning(const TuneSettings& settings);

std::string to_markdown(const TuneBench& bench);
/// Returns the table, in the form that programs read.
std::string to_json(const TuneBench& bench);

}  // namespace tessera::bench
