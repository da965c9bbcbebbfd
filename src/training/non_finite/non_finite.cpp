#include "src/training/non_finite/non_finite.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/training/non_finite/anomaly_detector.h"
#include "src/training/restore.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// The run stops after this many skipped steps in a row.
constexpr std::int64_t kMostInARow = 10;

std::string values_text(double loss, const std::vector<std::pair<std::string, double>>& terms, double grad_norm) {
  std::string out = concat("loss ", loss);
  for (const auto& [name, value] : terms) out += concat(", ", name, " ", value);
  return out + concat(", gradient norm ", grad_norm);
}

void add_if_bad(const std::string& name, const at::Tensor& tensor, std::vector<std::string>& out) {
  if (tensor.is_floating_point() && !at::isfinite(tensor.detach()).all().item<bool>()) out.push_back(name);
}

// Returns a list such as "a, b, c and 4 more".
std::string first_few(const std::vector<std::string>& names, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= most ? out : concat(out, " and ", names.size() - most, " more");
}

// What examining a step has found on this rank.
struct StepReport {
  std::int64_t step = 0;
  bool finite = true;
  std::string first;  // the first finding, as one line
  std::string text;   // the whole report, including the samples, as several lines
};

// Computes the step that follows `done` steps, but not its update. Checks the result of each operator, so it is slow. Every rank must call
// this function.
StepReport examine_step(StepRunner& runner, TrainingRun& run, std::int64_t done, double scale) {
  const std::map<std::string, at::Tensor> weights = weights_of(*run.model, *run.objective);
  std::vector<std::string> bad_weights, bad_gradients;
  for (const auto& [name, tensor] : weights) add_if_bad(name, tensor, bad_weights);
  AccumulatedLosses result;
  std::string findings;
  {
    const AnomalyDetector watch(weights);
    result = runner.run_operators(done, at::full({}, scale, at::TensorOptions(run.device).dtype(at::kFloat)));
    findings = watch.report();
  }
  std::vector<at::Tensor> gradients;
  for (const NamedParameter& parameter : run.optimizer->parameters()) {
    const at::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    add_if_bad(parameter.name, gradient, bad_gradients);
  }
  const double loss = result.loss.item<double>(), grad_norm = global_norm(gradients).item<double>() / scale;
  StepReport report{.step = done + 1};
  report.finite = std::isfinite(loss) && std::isfinite(grad_norm) && bad_weights.empty() && bad_gradients.empty();
  std::vector<std::pair<std::string, double>> terms;
  for (const auto& [name, term] : result.terms) {
    terms.emplace_back(name, term.item<double>());
    report.finite = report.finite && std::isfinite(terms.back().second);
  }
  report.first = !bad_weights.empty() ? concat("already not finite before the step: ", first_few(bad_weights, 3))
                 : !findings.empty()  ? findings
                 : report.finite      ? "all finite when computed again"
                                      : "no operator of this rank produced the first non-finite value";
  report.text = concat("step ", with_thousands(report.step), ": ", values_text(loss, terms, grad_norm), "\n  first not finite: ", report.first,
                       "\n", bad_gradients.empty() ? "" : concat("  gradients not finite: ", first_few(bad_gradients, 5), "\n"), "  samples:");
  for (const std::string& key : result.keys) report.text += " " + key;
  report.text += "\n";
  return report;
}

}  // namespace

NonFiniteHandler::NonFiniteHandler(const Config& config, const ProcessGroup& group, TrainingRun& run,
                                   StepRunner& runner, NonFiniteGuard& guard, CheckpointKeeper& checkpoints,
                                   RunLog& log, const std::string& folder)
    : config_(config),
      group_(group),
      run_(run),
      runner_(runner),
      guard_(guard),
      checkpoints_(checkpoints),
      log_(log),
      folder_(folder) {}

bool NonFiniteHandler::go_on_after(const TrainedStep& step, std::int64_t later, RunState& state) {
  using Decision = NonFiniteGuard::StepDecision;
  if (step.decided == Decision::update) {
    skipped_in_a_row_ = 0;
    return true;
  }
  run_.optimizer->take_back(1 + later);
  if (step.decided == Decision::overflow) return true;
  const bool first = examined_ == 0;
  const bool stop = config_.training.non_finite == "stop" || skipped_in_a_row_ + 1 >= kMostInARow;
  const std::string values = values_text(step.row.loss, step.row.terms, step.row.grad_norm);
  checkpoints_.wait();
  const std::string& last_good = checkpoints_.last_good();
  log_.error(concat("step ", step.losses.step, ": not finite: ", values, "; ",
                    stop ? "stopped" : concat("skipped (", state.skipped + 1, " so far)"),
                    ". Last good checkpoint: ", last_good.empty() ? "none" : last_good));
  if (first || stop) examine(step, state);
  list_samples(step, values);
  if (!stop) {
    state = step.after;
    if (later > 0) run_.loader->seek(state.data);
    guard_.go_on();
  }
  ++state.skipped;
  ++skipped_in_a_row_;
  if (stop && config_.training.non_finite == "skip")
    log_.error(concat(skipped_in_a_row_, " steps in a row were not finite: stopped"));
  return !stop;
}

void NonFiniteHandler::examine(const TrainedStep& step, RunState& state) {
  ++examined_;
  state = step.before;  // the bad step and later steps changed no weights, so the weights still belong to this state
  run_.loader->seek(step.losses.begin);
  const Checkpoint before = checkpoints_.gather(state);
  std::string saved;
  run_on_rank0(group_, "saving the state before the bad step", [&] {
    try {
      saved = CheckpointFolder(folder_ + "/non_finite", 3).save(before);
    } catch (const UserError& error) {
      log_.error(concat("cannot save the state before the bad step: ", error.what()));
    }
    return true;
  });
  guard_.begin();
  const bool scaled = step.scale.defined();
  const StepReport report = examine_step(runner_, run_, state.step, scaled ? state.loss_scale.scale : 1.0);
  guard_.restore();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::string found = group_.broadcast_text(report.first, rank);
    log_.error(concat("step ", report.step, group_.size() == 1 ? "" : concat(", rank ", rank), ": ", found));
  }
  if (!saved.empty())
    log_.error(concat("to examine it again: trainer --config ", folder_, "/config.yaml --replay-step ", saved,
                      group_.size() == 1 ? "" : concat(" --nproc ", group_.size())));
}

void NonFiniteHandler::list_samples(const TrainedStep& step, const std::string& values) {
  std::string own, all;
  for (const std::string& key : step.losses.keys) own += key + "\n";
  for (int rank = 0; rank < group_.size(); ++rank) all += group_.broadcast_text(own, rank);
  if (!group_.first()) return;
  nlohmann::ordered_json row = {{"step", step.losses.step}, {"values", values}, {"samples", nlohmann::json::array()}};
  for (const std::string& key : split(all, '\n'))
    if (!key.empty()) row["samples"].push_back(key);
  const std::string path = folder_ + "/non_finite.jsonl";
  const bool written = static_cast<bool>(std::ofstream(path, std::ios::app) << dump_utf8(row) + "\n" << std::flush);
  log_.error(
      concat("step ", step.losses.step, ": its samples ", written ? "are" : "could not be", " listed in ", path));
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
  const StepReport report = examine_step(runner, run, checkpoint.state.step, scale);

  std::string text;
  at::Tensor bad = at::full({1}, report.finite ? 0 : 1, at::kLong);
  group.all_reduce(bad, Reduction::max);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.size() > 1) text += concat("rank ", rank, ": ");
    text += group.broadcast_text(report.text, rank);
  }
  return {text, bad.item<std::int64_t>() == 0};
}

}  // namespace tessera
