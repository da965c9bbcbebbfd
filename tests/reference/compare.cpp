#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/reference/compare.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::probe {
namespace {

// Turns on autocast for bfloat16 runs, as training does.
class AutocastGuard {
 public:
  explicit AutocastGuard(const RunOptions& options)
      : device_(options.device.type()),
        enabled_(at::autocast::is_autocast_enabled(device_)),
        dtype_(at::autocast::get_autocast_dtype(device_)) {
    at::autocast::set_autocast_enabled(device_, options.dtype == at::kBFloat16);
    if (options.dtype == at::kBFloat16) at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  }
  ~AutocastGuard() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType dtype_;
};

// Returns the scalar that is differentiated: the loss or, if the case has cotangents, the sum of cotangent * output. Returns an undefined
// tensor if this scalar does not depend on any leaf.
at::Tensor differentiated_scalar(const Case& reference, const Outputs& outputs) {
  if (reference.cotangents.empty()) {
    const auto loss = outputs.find("loss");
    TORCH_CHECK(loss != outputs.end(), "the case has gradients, but no cotangent, and the module has no output loss");
    return loss->second.requires_grad() ? loss->second : at::Tensor();
  }
  at::Tensor sum;
  for (const auto& [name, cotangent] : reference.cotangents) {
    const auto output = outputs.find(name);
    TORCH_CHECK(output != outputs.end(), "the case has a cotangent of output ", name,
                ", which the module does not have");
    if (!output->second.requires_grad()) continue;
    TORCH_CHECK(output->second.sizes() == cotangent.sizes(), "output ", name, " is ", output->second.sizes(),
                ", its cotangent ", cotangent.sizes());
    const at::Tensor wide = output->second.to(output->second.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const at::Tensor term = (wide * cotangent.to(wide.options())).sum();
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

void compare_gradients(const Case& reference, const Run& run, const Outputs& outputs, double rtol, CaseReport& report) {
  // Lists each leaf once, because several parameters may be slices of the same leaf.
  std::vector<at::Tensor> leaves;
  std::map<const void*, std::size_t> place;
  const auto add = [&](const at::Tensor& leaf) {
    if (leaf.requires_grad() && place.emplace(leaf.unsafeGetTensorImpl(), leaves.size()).second) leaves.push_back(leaf);
  };
  for (const auto& [name, leaf] : run.inputs()) add(leaf);
  for (const auto& [name, binding] : run.bindings()) add(binding.leaf);

  std::vector<at::Tensor> gradients(leaves.size());
  const at::Tensor scalar = differentiated_scalar(reference, outputs);
  if (scalar.defined() && !leaves.empty())
    gradients = torch::autograd::grad({scalar}, leaves, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                      /*allow_unused=*/true);
  const auto gradient_of = [&](const at::Tensor& leaf) {
    const auto found = place.find(leaf.unsafeGetTensorImpl());
    return found == place.end() ? at::Tensor() : gradients[found->second];
  };

  for (const auto& [name, theirs] : reference.input_gradients) {
    const std::string label = "grad.in." + name;
    if (!run.has(name))
      report.rows.push_back({label, 0, 0, "the case has no such input"});
    else
      report.rows.push_back(compare(label, gradient_of(run.input(name)), theirs, rtol));
  }
  for (const auto& [name, theirs] : reference.parameter_gradients) {
    const std::string label = "grad.param." + name;
    const auto binding = run.bindings().find(name);
    if (binding == run.bindings().end()) {
      report.rows.push_back({label, 0, 0, "missing: the module has no such parameter"});
      continue;
    }
    at::Tensor ours = gradient_of(binding->second.leaf);
    if (ours.defined() && binding->second.view) ours = binding->second.view(ours);
    report.rows.push_back(compare(label, ours, theirs, rtol));
  }
}

bool is_whole(const at::Tensor& tensor) {
  return !tensor.is_floating_point() && tensor.scalar_type() != at::kByte;
}

}  // namespace

bool CaseReport::agrees() const {
  return failure.empty() && std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.agrees(); });
}

Row compare(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs, double rtol) {
  Row row{name, 0, 0, {}};
  const at::Tensor wanted = theirs.detach().to(at::kCPU, at::kDouble);
  if (ours.defined() && ours.sizes() != theirs.sizes()) {
    row.problem = concat("shape is ", ours.sizes(), ", expected ", theirs.sizes());
    return row;
  }
  const at::Tensor got = ours.defined() ? ours.detach().to(at::kCPU, at::kDouble) : at::zeros_like(wanted);
  if (wanted.numel() == 0) return row;

  const at::Tensor finite = wanted.isfinite();
  const at::Tensor magnitude = at::where(finite, wanted.abs(), 0);
  row.bound = is_whole(theirs) ? 0 : rtol * (1 + magnitude.max().item<double>());
  if ((got.isnan() & ~wanted.isnan()).any().item<bool>()) {
    row.problem = "NaN where the reference has none";
    return row;
  }
  // Where the reference is not finite, our output must have the same value (infinity or NaN).
  const at::Tensor same = (got == wanted) | (got.isnan() & wanted.isnan());
  if ((~finite & ~same).any().item<bool>()) {
    row.problem = "finite where the reference is not";
    return row;
  }
  row.error = at::where(same, 0, (got - wanted).abs()).max().item<double>();
  return row;
}

CaseReport run_case(const Case& reference, const Runners& runners, const RunOptions& options) {
  const Runner* runner = runners.find(reference.module);
  if (runner == nullptr) {
    const std::string hint = suggestion(reference.module, runners.names());
    const std::string known =
        hint.starts_with("; known") ? "" : concat(" (known modules: ", join_names(runners.names()), ")");
    user_error(reference.path, ": unknown module ", reference.module, hint, known);
  }
  CaseReport report{reference.path, reference.module, reference.note, {}, {}, {}};
  const bool narrow = options.dtype == at::kBFloat16;
  if (narrow && reference.float32_only) {
    report.skipped = "bfloat16 cannot hold its numbers";
    return report;
  }
  const double rtol = reference.rtol * (narrow ? 100 : 1);
  try {
    Run run(reference, options);
    Outputs outputs;
    {
      const AutocastGuard autocast(options);
      outputs = (*runner)(run);
    }
    for (const auto& [name, theirs] : reference.outputs) {
      const auto ours = outputs.find(name);
      if (ours == outputs.end() || !ours->second.defined())
        report.rows.push_back({"out." + name, 0, 0, "missing: the module has no such output"});
      else
        report.rows.push_back(compare("out." + name, ours->second, theirs, rtol));
    }
    for (const auto& [name, value] : reference.parameters)
      if (!run.bindings().contains(name))
        report.rows.push_back({"param." + name, 0, 0, "unknown: the module has no such parameter"});
    if (reference.differentiated()) compare_gradients(reference, run, outputs, rtol, report);
  } catch (const c10::Error& error) {
    report.failure = error.what_without_backtrace();
  }
  return report;
}

CaseReport run_file(const std::string& path, const Runners& runners, const RunOptions& options) {
  if (!path.ends_with(".jsonl")) return run_case(load_case(path), runners, options);
  const std::vector<nlohmann::json> lines = load_json_lines(path);
  const LinesRunner* runner = runners.find_lines(path);
  if (runner == nullptr)
    user_error(path, ": no module checks this file of lines (known modules: ", join_names(runners.names()), ")");
  CaseReport report{path, "lines", concat(lines.size(), " lines"), {}, {}, {}};
  for (const std::string& problem : (*runner)(lines)) {
    const std::size_t colon = problem.find(": ");
    report.rows.push_back(
        {problem.substr(0, colon), 0, 0, colon == std::string::npos ? "disagrees" : problem.substr(colon + 2)});
  }
  return report;
}

}  // namespace tessera::probe
