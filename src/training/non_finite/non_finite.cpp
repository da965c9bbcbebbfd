#include "src/training/non_finite/non_finite.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/training/restore.h"
#include "src/training/run/epochs.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

struct AnomalyDetector::Impl {
  std::map<const void*, std::string> names;
  std::string place;  // the parameter that was used most recently
  std::string first_infinite, first_nan;
  at::CallbackHandle handle = 0;
};

namespace {

// The active detector; there is at most one at a time. Threads of the loader use operators, too, so the mutex guards it and its members.
AnomalyDetector::Impl* watching = nullptr;
std::mutex watching_mutex;
// True while the detector runs its own operators, which must not be checked.
thread_local bool testing = false;
struct Testing {
  Testing() { testing = true; }
  ~Testing() { testing = false; }
  const c10::NoGradGuard no_grad;
};
thread_local std::string backward_of;  // name of the autograd node that this thread is running; empty outside a backward pass

// What on_end() must know about the time before an operator or autograd node.
struct Before : at::ObserverContext {
  bool nan = false, infinite = false;
  std::string outer;
};

// Returns true for operators whose non-finite outputs are no sign of an error. Such outputs are uninitialized memory, or values that the
// program asked for, such as an infinity in a mask.
bool may_give_anything(std::string_view name) {
  for (const std::string_view part : {"empty", "resize", "set_", "fill", "full", "scalar_tensor", "where", "copy_"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

// Calls body(tensor, number of NaNs, number of infinities) for each tensor of numbers among the values, if a detector is still active.
template <class Values, class Body>
void count_bad(const Values& values, Body&& body) {
  const Testing guard;
  for (const c10::IValue& value : values)
    for (const at::Tensor& tensor : value.isTensor()       ? std::vector<at::Tensor>{value.toTensor()}
                                    : value.isTensorList() ? value.toTensorVector()
                                                           : std::vector<at::Tensor>{}) {
      if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0 || tensor.layout() != at::kStrided ||
          tensor.is_meta() || !tensor.has_storage())
        continue;
      const at::Tensor plain = tensor.detach();
      const auto nan = at::isnan(plain).sum().item<std::int64_t>(), infinite = at::isinf(plain).sum().item<std::int64_t>();
      const std::lock_guard lock(watching_mutex);
      if (watching != nullptr) body(tensor, nan, infinite);
    }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call) {
  if (testing) return nullptr;
  auto before = std::make_unique<Before>();
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    before->outer = std::exchange(backward_of, call.name());
    return before;
  }
  count_bad(call.inputs(), [&](const at::Tensor& tensor, std::int64_t nan, std::int64_t infinite) {
    const auto found = watching->names.find(tensor.const_data_ptr());
    if (found != watching->names.end()) watching->place = found->second;
    before->nan |= nan > 0;
    before->infinite |= infinite > 0;
  });
  return before;
}

void on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  const auto* before = static_cast<Before*>(context);
  if (before == nullptr) return;
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    backward_of = before->outer;
    return;
  }
  if (testing || may_give_anything(call.name())) return;
  count_bad(call.outputs(), [&](const at::Tensor& tensor, std::int64_t nan, std::int64_t infinite) {
    const auto note = [&](std::string& first, std::int64_t bad, const char* what) {
      if (bad == 0 || !first.empty()) return;
      first = concat(call.name(), " gave ", what, " (", bad, " of ", tensor.numel(), " values, ", tensor.sizes(), " ",
                     c10::toString(tensor.scalar_type()), ") in the ",
                     backward_of.empty() ? std::string("forward pass") : "backward pass (" + backward_of + ")",
                     watching->place.empty() ? "" : ", after " + watching->place);
    };
    if (!before->nan) note(watching->first_nan, nan, "NaN");
    if (!before->nan && !before->infinite && watching->first_nan.empty()) note(watching->first_infinite, infinite, "infinity");
  });
}

}  // namespace

AnomalyDetector::AnomalyDetector(const std::map<std::string, at::Tensor>& names) : impl_(std::make_unique<Impl>()) {
  for (const auto& [name, tensor] : names) impl_->names.emplace(tensor.const_data_ptr(), name);
  const std::lock_guard lock(watching_mutex);
  watching = impl_.get();
  impl_->handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                            .needsInputs(true)
                                            .needsOutputs(true)
                                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

AnomalyDetector::~AnomalyDetector() {
  at::removeCallback(impl_->handle);
  const std::lock_guard lock(watching_mutex);
  watching = nullptr;
}

std::string AnomalyDetector::report() const {
  const std::lock_guard lock(watching_mutex);
  const std::string between = impl_->first_infinite.empty() || impl_->first_nan.empty() ? "" : "; ";
  return impl_->first_infinite + between + impl_->first_nan;
}

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
  const std::map<std::string, at::Tensor> weights = collect_weights(*run.model, *run.objective);
  std::vector<std::string> bad_weights, bad_gradients;
  for (const auto& [name, tensor] : weights) add_if_bad(name, tensor, bad_weights);
  AccumulatedLosses result;
  std::string findings;
  {
    const AnomalyDetector watch(weights);
    result = runner.run_operators(done, at::full({}, scale, at::TensorOptions(run.device).dtype(at::kFloat)));
    findings = watch.report();
  }
  const Optimizer& optimizer = *run.optimizer;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
    if (optimizer.gradient(i).defined()) add_if_bad(optimizer.parameters()[i].name, optimizer.gradient(i), bad_gradients);
  const at::Tensor norm = optimizer.norms_over_ranks(global_norm(optimizer.gradients()));
  const double loss = result.loss.item<double>(), grad_norm = norm.item<double>() / scale;
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
    if (later > 0) runner_.batches().seek(state.data);
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
  runner_.batches().seek(step.losses.begin);
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
  Config config = with_rank_batch(given, group.size());
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
