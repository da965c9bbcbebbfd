#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>
#include <torch/nn/module.h>

#include "tests/reference/case.h"

namespace tessera::probe {

struct RunOptions {
  at::Device device = at::kCPU;
  // type of floating-point inputs; with bfloat16, parameters stay float32 and modules run under autocast
  at::ScalarType dtype = at::kFloat;
};

/// Provides a runner with the inputs of a case, and records which tensors hold the case's parameters. Floating-point inputs require grad if
/// the case has gradients.
class Run {
 public:
  Run(const Case& reference, const RunOptions& options);

  const config::Node& settings() const { return case_.settings; }
  const std::string& path() const { return case_.path; }
  at::Device device() const { return options_.device; }
  /// The dtype of parameters.
  at::ScalarType parameter_dtype() const;

  bool has(const std::string& name) const { return inputs_.contains(name); }
  /// Returns the input of this name. Throws c10::Error with the name if the case does not have it.
  const at::Tensor& input(const std::string& name) const;
  /// Returns the input of this name, or an undefined tensor if the case does not have it.
  at::Tensor optional_input(const std::string& name) const;
  const std::map<std::string, at::Tensor>& inputs() const { return inputs_; }
  /// The raw `inputs` of a `.json` case (texts, lists of lists).
  const nlohmann::json& json_inputs() const { return case_.json_inputs; }

  bool has_parameter(const std::string& name) const { return case_.parameters.contains(name); }
  std::vector<std::string> parameter_names() const;
  /// Returns the case's parameter of this name, for functions that take parameters as arguments. It is a leaf that requires grad if the
  /// case has gradients.
  at::Tensor parameter(const std::string& name);
  /// bind() copies the case's parameter `name` into `leaf`, a parameter of the module, and makes run_case() differentiate with respect to
  /// `leaf`. `view` selects the part of the leaf, and of its gradient, that corresponds to the case's parameter, such as a slice of a fused
  /// matrix.
  using View = std::function<at::Tensor(const at::Tensor&)>;
  void bind(const std::string& name, const at::Tensor& leaf, const View& view = {});
  /// Moves the module to the run's device and dtype, and binds all its parameters and buffers under `prefix` + their names. Throws
  /// c10::Error if the case lacks a parameter; a buffer that the case lacks keeps its value.
  void bind_all(torch::nn::Module& module, const std::string& prefix = "");

  struct Binding {
    at::Tensor leaf;
    View view;
  };
  const std::map<std::string, Binding>& bindings() const { return bindings_; }

 private:
  const at::Tensor& case_parameter(const std::string& name) const;

  const Case& case_;
  RunOptions options_;
  std::map<std::string, at::Tensor> inputs_;
  std::map<std::string, Binding> bindings_;
};

using Outputs = std::map<std::string, at::Tensor>;
/// Builds the module from run.settings(), gives it the case's parameters, and returns its outputs by name. Throws UserError for
/// wrong settings, and c10::Error for inputs that do not fit.
using Runner = std::function<Outputs(Run&)>;

/// Checks the cases of a `.jsonl` file, one per line. Returns a message for each wrong result ("line 12: ...").
using LinesRunner = std::function<std::vector<std::string>(const std::vector<nlohmann::json>& lines)>;

/// The runners by module name.
class Runners {
 public:
  void add(const std::string& module, Runner runner);
  /// Adds the runner for the files `STEM.jsonl` and `STEM_*.jsonl`.
  void add_lines(const std::string& stem, LinesRunner runner);

  const Runner* find(const std::string& module) const;
  const LinesRunner* find_lines(const std::string& path) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, Runner> runners_;
  std::map<std::string, LinesRunner> lines_;
};

/// Returns the runners of all modules of the core library. Each file tests/reference/NAME_runners.cpp defines a function that adds its
/// runners. The function is declared in tests/reference/all_runners.h and called in tests/reference/registry.cpp.
Runners core_runners();

/// Returns core_runners() and the runners of modules that need the data libraries. The function is defined in tessera_data
/// (tests/reference/data_registry.cpp).
Runners all_runners();

}  // namespace tessera::probe
