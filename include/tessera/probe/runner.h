#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>
#include <torch/nn/module.h>

#include <tessera/probe/case.h>

namespace tessera::probe {

struct RunOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // of floating inputs; parameters stay float32 under bfloat16, which runs autocast
};

/// What a runner gets of a case, and where it says which tensors hold the case's parameters. Floating inputs require
/// grad when the case has gradients.
class Run {
 public:
  Run(const Case& reference, const RunOptions& options);

  const config::Node& settings() const { return case_.settings; }
  const std::string& path() const { return case_.path; }
  at::Device device() const { return options_.device; }
  /// The dtype of parameters.
  at::ScalarType parameter_dtype() const;

  bool has(const std::string& name) const { return inputs_.contains(name); }
  /// The input; throws c10::Error naming it if the case has none.
  const at::Tensor& input(const std::string& name) const;
  /// The input, or an undefined tensor.
  at::Tensor optional_input(const std::string& name) const;
  const std::map<std::string, at::Tensor>& inputs() const { return inputs_; }
  /// The `inputs` of a `.json` case as written (texts, lists of lists).
  const nlohmann::json& json_inputs() const { return case_.json_inputs; }

  bool has_parameter(const std::string& name) const { return case_.parameters.contains(name); }
  std::vector<std::string> parameter_names() const;
  /// For modules that are functions: the parameter itself, a leaf that requires grad if the case has gradients.
  at::Tensor parameter(const std::string& name);
  /// Copies the case's parameter into a tensor of the module (a leaf) and differentiates with respect to it. `view`
  /// picks the part of the leaf, and of its gradient, that the name means (a slice of a fused matrix).
  using View = std::function<at::Tensor(const at::Tensor&)>;
  void bind(const std::string& name, const at::Tensor& leaf, const View& view = {});
  /// Moves the module to the run's device and dtype, and binds all its parameters and buffers under `prefix` + their
  /// names. Throws c10::Error if the case lacks a parameter; a buffer may be missing.
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
/// Builds the module from run.settings(), gives it the case's parameters, and returns its outputs by name. Settings
/// that are wrong throw UserError, inputs that do not fit c10::Error.
using Runner = std::function<Outputs(Run&)>;

/// Checks the lines of a `.jsonl` file of cases; returns one text per line that disagrees ("line 12: ...").
using LinesRunner = std::function<std::vector<std::string>(const std::vector<nlohmann::json>& lines)>;

/// Module name -> runner.
class Runners {
 public:
  void add(const std::string& module, Runner runner);
  /// For files `STEM.jsonl` and `STEM_*.jsonl`.
  void add_lines(const std::string& stem, LinesRunner runner);

  const Runner* find(const std::string& module) const;
  const LinesRunner* find_lines(const std::string& path) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, Runner> runners_;
  std::map<std::string, LinesRunner> lines_;
};

/// The runners of all modules of the core library. Owners: one file src/probe/NAME_runners.cpp, declared in
/// src/probe/all_runners.h and called in src/probe/registry.cpp.
Runners core_runners();

/// core_runners() and those of modules that need the data libraries; in tessera_data (src/probe/data_registry.cpp).
Runners all_runners();

}  // namespace tessera::probe
