#include <cmath>
#include <filesystem>
#include <sstream>

#include <ATen/ATen.h>

#include "src/distributed/agreement.h"
#include "src/optim/clip_grad_norm.h"
#include "src/training/non_finite/anomaly_detector.h"
#include "src/training/non_finite/non_finite_report.h"
#include "src/training/restore.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

bool is_finite(const at::Tensor& tensor) {
  return !tensor.is_floating_point() || at::isfinite(tensor.detach()).all().item<bool>();
}

// Returns a list such as "a, b, c and 4 more".
std::string first_few(const std::vector<std::string>& names, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= most ? out : concat(out, " and ", names.size() - most, " more");
}

}  // namespace

bool NonFiniteReport::finite() const {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return false;
  for (const auto& [name, value] : terms)
    if (!std::isfinite(value)) return false;
  return bad_weights.empty() && bad_gradients.empty();
}

NonFiniteReport examine_step(StepRunner& runner, TrainingRun& run, std::int64_t done, double scale) {
  NonFiniteReport report;
  report.step = done + 1;
  const std::map<std::string, at::Tensor> weights = weights_of(*run.model, *run.objective);
  for (const auto& [name, tensor] : weights)
    if (!is_finite(tensor)) report.bad_weights.push_back(name);
  AccumulatedLosses result;
  {
    const AnomalyDetector watch(weights);
    result = runner.run_operators(done, at::full({}, scale, at::TensorOptions(run.device).dtype(at::kFloat)));
    report.findings = watch.report();
  }
  report.loss = result.loss.item<double>();
  for (const auto& [name, term] : result.terms) report.terms.emplace_back(name, term.item<double>());
  report.keys = result.keys;
  std::vector<at::Tensor> gradients;
  for (const NamedParameter& parameter : run.optimizer->parameters()) {
    const at::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    if (!is_finite(gradient)) report.bad_gradients.push_back(parameter.name);
  }
  report.grad_norm = global_norm(gradients).item<double>() / scale;
  return report;
}

std::string summary(const NonFiniteReport& report) {
  if (!report.bad_weights.empty())
    return concat("already not finite before the step: ", first_few(report.bad_weights, 3));
  if (!report.findings.empty()) return report.findings;
  return report.finite() ? "all finite when computed again" : "no operator of this rank produced the first non-finite value";
}

std::string to_text(const NonFiniteReport& report) {
  std::ostringstream out;
  out << "step " << with_thousands(report.step) << ": loss " << report.loss;
  for (const auto& [name, value] : report.terms) out << ", " << name << " " << value;
  out << ", gradient norm " << report.grad_norm << "\n  first not finite: " << summary(report) << "\n";
  if (!report.bad_gradients.empty()) out << "  gradients not finite: " << first_few(report.bad_gradients, 5) << "\n";
  out << "  samples:";
  for (const std::string& key : report.keys) out << " " << key;
  out << "\n";
  return out.str();
}

std::pair<std::string, bool> replay_step(const Config& given, const std::string& folder, const ProcessGroup& group) {
  if (!std::filesystem::exists(folder + "/manifest.json"))
    user_error("--replay-step ", folder, ": not a saved state: expected a folder like RUN/non_finite/step_0001000");
  Config config = given;
  TrainingRun run = build_training_run(config, group);
  Checkpoint checkpoint;
  run_on_all_ranks(group, "reading the saved state", [&] {
    checkpoint = load_checkpoint(folder);
    const std::ptrdiff_t ranks = std::max<std::ptrdiff_t>(std::ssize(checkpoint.state.ranks), 1);
    if (ranks != group.size())
      user_error("--replay-step ", folder, ": was saved by ", ranks, " ranks, but there are ", group.size(), ": start the same number");
    apply_checkpoint(run, config, group, checkpoint, folder);
  });
  GradientReducer gradients = make_reducer(run, config, group);
  Heartbeat heartbeat(group, config.distributed.heartbeat);
  StepRunner runner(config, group, run, gradients, heartbeat);
  const double scale = config.training.precision == "fp16" ? checkpoint.state.loss_scale.scale : 1.0;
  const NonFiniteReport report = examine_step(runner, run, checkpoint.state.step, scale);

  std::string text;
  at::Tensor bad = at::full({1}, report.finite() ? 0 : 1, at::kLong);
  group.all_reduce(bad, Reduction::max);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.size() > 1) text += concat("rank ", rank, ": ");
    text += group.broadcast_text(to_text(report), rank);
  }
  return {text, bad.item<std::int64_t>() == 0};
}

}  // namespace tessera
