#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "tests/reference/runner.h"
#include <tessera/base/text.h>

namespace tessera::probe {
namespace {

template <class T>
std::vector<std::string> keys(const std::map<std::string, T>& items) {
  std::vector<std::string> names;
  for (const auto& [name, item] : items) names.push_back(name);
  return names;
}

}  // namespace

Run::Run(const Case& reference, const RunOptions& options) : case_(reference), options_(options) {
  for (const auto& [name, tensor] : case_.inputs) {
    at::Tensor input =
        tensor.is_floating_point() ? tensor.to(options.device, options.dtype) : tensor.to(options.device);
    input = input.clone();
    if (case_.differentiated() && input.is_floating_point()) input.requires_grad_(true);
    inputs_.emplace(name, input);
  }
}

at::ScalarType Run::parameter_dtype() const {
  return options_.dtype == at::kDouble ? at::kDouble : at::kFloat;
}

const at::Tensor& Run::input(const std::string& name) const {
  const auto found = inputs_.find(name);
  TORCH_CHECK(found != inputs_.end(), "the case has no input ", name, "; it has: ", join_names(keys(inputs_)));
  return found->second;
}

at::Tensor Run::optional_input(const std::string& name) const {
  const auto found = inputs_.find(name);
  return found == inputs_.end() ? at::Tensor() : found->second;
}

std::vector<std::string> Run::parameter_names() const {
  return keys(case_.parameters);
}

const at::Tensor& Run::case_parameter(const std::string& name) const {
  const auto found = case_.parameters.find(name);
  TORCH_CHECK(found != case_.parameters.end(), "the case has no parameter ", name,
              "; it has: ", join_names(parameter_names()));
  return found->second;
}

at::Tensor Run::parameter(const std::string& name) {
  if (const auto bound = bindings_.find(name); bound != bindings_.end()) return bound->second.leaf;
  const at::Tensor& value = case_parameter(name);
  at::Tensor leaf = (value.is_floating_point() ? value.to(device(), parameter_dtype()) : value.to(device())).clone();
  if (case_.differentiated() && leaf.is_floating_point()) leaf.requires_grad_(true);
  bindings_[name] = {leaf, {}};
  return leaf;
}

void Run::bind(const std::string& name, const at::Tensor& leaf, const View& view) {
  const at::Tensor& value = case_parameter(name);
  const at::NoGradGuard no_grad;
  at::Tensor target = view ? view(leaf) : leaf;
  TORCH_CHECK(target.sizes() == value.sizes(), "parameter ", name, " is ", value.sizes(), " in the case, but ",
              target.sizes(), " in the module");
  target.copy_(value);
  bindings_[name] = {leaf, view};
}

void Run::bind_all(torch::nn::Module& module, const std::string& prefix) {
  module.to(device(), parameter_dtype());
  for (const auto& item : module.named_parameters()) bind(prefix + item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (has_parameter(prefix + item.key())) bind(prefix + item.key(), item.value());
}

}  // namespace tessera::probe
