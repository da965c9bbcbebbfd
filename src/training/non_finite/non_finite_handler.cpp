#include <fstream>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/training/non_finite/non_finite_handler.h"
#include "src/training/non_finite/non_finite_report.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// The run stops after this many skipped steps in a row.
constexpr std::int64_t kMostInARow = 10;

std::string values_of(const MetricsRow& row) {
  std::string out = concat("loss ", row.loss);
  for (const auto& [name, value] : row.terms) out += concat(", ", name, " ", value);
  return out + concat(", gradient norm ", row.grad_norm);
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

bool NonFiniteHandler::go_on_after(const TrainedStep& step, std::int64_t vain, RunState& state) {
  using Decision = NonFiniteGuard::StepDecision;
  if (step.decided == Decision::update) {
    skipped_in_a_row_ = 0;
    return true;
  }
  run_.optimizer->take_back(1 + vain);
  if (step.decided == Decision::overflow) return true;
  const bool first = examined_ == 0;
  const bool stop = config_.training.non_finite == "stop" || skipped_in_a_row_ + 1 >= kMostInARow;
  const std::string values = values_of(step.row);
  const std::string keys = keys_of_all_ranks(step.losses.keys);
  checkpoints_.wait();
  const std::string& last_good = checkpoints_.last_good();
  log_.error(concat("step ", step.losses.step, ": not finite: ", values, "; ",
                    stop ? "stopped" : concat("skipped (", state.skipped + 1, " so far)"),
                    ". Last good checkpoint: ", last_good.empty() ? "none" : last_good));
  if (first || stop) examine(step, state);
  list_samples(step, values, keys);
  if (!stop) {
    state = step.after;
    if (vain > 0) run_.loader->seek(state.data);
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
  const NonFiniteReport report = examine_step(runner_, run_, state.step, scaled ? state.loss_scale.scale : 1.0);
  guard_.restore();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::string found = group_.broadcast_text(summary(report), rank);
    log_.error(concat("step ", report.step, group_.size() == 1 ? "" : concat(", rank ", rank), ": ", found));
  }
  if (!saved.empty())
    log_.error(concat("to examine it again: trainer --config ", folder_, "/config.yaml --replay-step ", saved,
                      group_.size() == 1 ? "" : concat(" --nproc ", group_.size())));
}

std::string NonFiniteHandler::keys_of_all_ranks(const std::vector<std::string>& own) const {
  std::string mine, all;
  for (const std::string& key : own) mine += key + "\n";
  for (int rank = 0; rank < group_.size(); ++rank) all += group_.broadcast_text(mine, rank);
  return all;
}

void NonFiniteHandler::list_samples(const TrainedStep& step, const std::string& values, const std::string& keys) {
  if (!group_.first()) return;
  nlohmann::ordered_json row = {{"step", step.losses.step}, {"values", values}, {"samples", nlohmann::json::array()}};
  for (const std::string& key : split(keys, '\n'))
    if (!key.empty()) row["samples"].push_back(key);
  const std::string path = folder_ + "/non_finite.jsonl";
  const bool written = static_cast<bool>(std::ofstream(path, std::ios::app) << dump_utf8(row) + "\n" << std::flush);
  log_.error(
      concat("step ", step.losses.step, ": its samples ", written ? "are" : "could not be", " listed in ", path));
}

}  // namespace tessera
