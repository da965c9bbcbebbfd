// What a run does about steps that are not finite.
#include <fstream>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/distributed/agreement.h>
#include <tessera/training/non_finite/non_finite_report.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

// Steps left out one after the other after which a run is beyond hope.
constexpr std::int64_t kMostInARow = 10;

std::string values_of(const AccumulatedLosses& result, const std::vector<double>& numbers) {
  std::string out = concat("loss ", numbers[0]);
  for (std::size_t k = 0; k < result.terms.size(); ++k) out += concat(", ", result.terms[k].first, " ", numbers[k + 2]);
  return out + concat(", gradient norm ", numbers[1]);
}

}  // namespace

void Trainer::report_error(const std::string& text) {
  if (!group_.first()) return;
  log_.clear();
  log::error(text);
}

bool Trainer::go_on_after(const PendingUpdate& step, const std::vector<double>& numbers) {
  const bool first = examined_ == 0;
  const bool stop = config_.training.non_finite == "stop" || skipped_in_a_row_ + 1 >= kMostInARow;
  const std::string values = values_of(step.result, numbers);
  const std::string keys = keys_of_all_ranks(step.result.keys);
  collect_checkpoint(false);
  report_error(concat("step ", step.result.step, ": not finite: ", values, "; ",
                      stop ? "stopped" : concat("skipped (", state_.skipped + 1, " so far)"),
                      ". Last good checkpoint: ", last_good_.empty() ? "none" : last_good_));
  if (first || stop) examine(step);
  write_incident(step, values, keys);
  ++state_.skipped;
  ++skipped_in_a_row_;
  if (stop && config_.training.non_finite == "skip")
    report_error(concat(skipped_in_a_row_, " steps in a row were not finite: stopped"));
  return !stop;
}

void Trainer::examine(const PendingUpdate& step) {
  ++examined_;
  const RunState after = state_;
  // Under `stop` the steps that were under way have changed nothing; the state is the one that the bad step met.
  const std::int64_t halted = run_.optimizer->steps_taken() - step.updates_before;
  run_.optimizer->take_back(halted);
  state_ = step.before;
  run_.loader->seek(step.result.begin);
  const Checkpoint before = gather_checkpoint();
  std::string saved;
  run_on_rank0(group_, "saving the state before the bad step", [&] {
    try {
      saved = CheckpointFolder(folder_ + "/non_finite", 3).save(before);
    } catch (const UserError& error) {
      report_error(concat("the state before the bad step is not saved: ", error.what()));
    }
    return true;
  });
  guard_.begin();
  const NonFiniteReport report = examine_step(runner_, run_, state_.step, step.scale);
  guard_.restore();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::string found = group_.broadcast_text(summary(report), rank);
    report_error(concat("step ", report.step, group_.alone() ? "" : concat(", rank ", rank), ": ", found));
  }
  if (!saved.empty())
    report_error(concat("look again: trainer --config ", folder_, "/config.yaml --replay-step ", saved,
                        group_.alone() ? "" : concat(" --nproc ", group_.size())));
  if (config_.training.non_finite == "skip") state_ = after;
}

std::string Trainer::keys_of_all_ranks(const std::vector<std::string>& own) const {
  std::string mine, all;
  for (const std::string& key : own) mine += key + "\n";
  for (int rank = 0; rank < group_.size(); ++rank) all += group_.broadcast_text(mine, rank);
  return all;
}

void Trainer::write_incident(const PendingUpdate& step, const std::string& values, const std::string& keys) {
  if (!group_.first()) return;
  nlohmann::ordered_json row = {{"step", step.result.step}, {"values", values}, {"samples", nlohmann::json::array()}};
  for (const std::string& key : split(keys, '\n'))
    if (!key.empty()) row["samples"].push_back(key);
  const std::string path = folder_ + "/non_finite.jsonl";
  const bool written = static_cast<bool>(std::ofstream(path, std::ios::app) << row.dump() + "\n" << std::flush);
  report_error(
      concat("step ", step.result.step, ": its samples ", written ? "are" : "could not be", " listed in ", path));
}

}  // namespace tessera
