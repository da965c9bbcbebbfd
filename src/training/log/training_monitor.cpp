#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "src/base/host.h"
#include "src/distributed/agreement.h"
#include "src/measure/machine.h"
#include "src/optim/grad_norm_groups.h"
#include "src/training/log/run_changes.h"
#include "src/training/log/training_monitor.h"
#include <tessera/base/text.h>
#include <tessera/base/version.h>

namespace tessera {
namespace {

// Returns the settings that the run's page shows.
std::vector<std::pair<std::string, std::string>> facts_of(const Config& config, const ProcessGroup& group,
                                                          const TrainingRun& run, const std::string& folder) {
  const std::int64_t batch = config.data.loader.batch_size, batches = micro_batches(config, run);
  return {{"Run folder", folder},
          {"Objective", config.objective.name},
          {"Image tower", config.model.image.encoder.name},
          {"Text tower", config.model.text ? config.model.text->encoder.name : "none"},
          {"Parameters", describe(count_parameters(run))},
          {"Optimizer", concat(config.optimizer.name, ", learning rate ", run.optimizer->peak_learning_rate())},
          {"Schedule", config.schedule.schedule},
          {"Samples per step", with_thousands(batch * batches * group.size())},
          {"Batches per step",
           concat(batches, " of ", batch, group.size() == 1 ? "" : concat(" on each of ", group.size(), " ranks"))},
          {"Precision", config.training.precision},
          {"Host", host_name()},
          {"Seed", std::to_string(config.seed)},
          {"Data", run.train->describe()},
          {"Device", machine_name(run.device)},
          {"Version", version_line()},
          {"Command", command_line()}};
}

// Describes the length of a batch's longest text, which determines the batch's cost.
std::string describe_length(const std::map<std::string, TowerInput>& texts) {
  std::int64_t longest = 0;
  for (const auto& [name, text] : texts) longest = std::max(longest, text.ids.size(-1));
  return concat("texts of up to ", longest, " tokens");
}

}  // namespace

at::Tensor step_numbers(const AccumulatedLosses& losses, const GradientNorms& norms, const ProcessGroup& group,
                        const at::Device& device) {
  std::vector<at::Tensor> scalars{losses.loss, norms.global};
  for (const auto& [name, term] : losses.terms) scalars.push_back(term);
  for (const auto& [name, statistic] : losses.statistics) scalars.push_back(statistic);
  scalars.insert(scalars.end(), norms.groups.begin(), norms.groups.end());
  for (at::Tensor& scalar : scalars) scalar = scalar.to(device, at::kFloat).reshape({});
  at::Tensor stacked = at::stack(scalars);
  group.all_reduce(stacked);
  return stacked / group.size();
}

TrainingMonitor::TrainingMonitor(const Config& config, const ProcessGroup& group, const TrainingRun& run,
                                 const std::string& folder, Clock clock)
    : config_(config),
      group_(group),
      run_(run),
      folder_(folder),
      grad_norm_names_(grad_norm_groups(*run.optimizer).names),
      log_(folder, config.training.steps, config.log, group.first()),
      mfu_(config, run.device),
      profiler_(config.log, folder, group, run.device),
      advice_(advice_rules(config, run, group.size())),
      clock_(std::move(clock)) {}

void TrainingMonitor::resume_at(std::int64_t step, const std::string& id) {
  std::vector<std::pair<std::string, std::string>> facts = facts_of(config_, group_, run_, folder_);
  for (auto& change : noted_changes(folder_)) facts.push_back(std::move(change));
  log_.resume_at(step, config_.run.name.value_or("run"), facts, id);
  log_.set_chance(run_.objective->chance_levels(config_.data.loader.batch_size * group_.size()));
}

void TrainingMonitor::advise_on(const RunEvent& event) {
  if (!group_.first()) return;
  for (std::string& line : advise(advice_, event)) {
    log_.warning(line);
    warnings_.push_back(std::move(line));
  }
}

void TrainingMonitor::look_at(const Batch& batch) {
  if (first_texts_.empty() && !batch.texts.empty()) first_texts_ = describe_length(batch.texts);
  advise_on({.batch = &batch});
}

void TrainingMonitor::observe(std::int64_t number, const std::function<TrainedStep()>& make) {
  if (!window_.begin) window_.begin = clock_();
  profiler_.before(number);
  std::optional<FlopCounter> counter;
  if (mfu_.wants_count()) counter.emplace();
  const double waited = seconds_waited(group_);
  const TrainedStep& step = unread_.emplace_back(make());
  window_.waited_for_ranks.push_back(seconds_waited(group_) - waited);
  window_.forward.push_back(step.losses.forward);
  if (counter) {
    mfu_.counted(*counter, step.losses.samples / group_.size());
    log_.line(mfu_.describe(first_texts_));
    counter.reset();
  }
  if (const auto trace = profiler_.after(number)) log_.line("profiler trace: " + *trace);
  const LoaderStatistics loader = run_.loader->statistics();
  advise_on({.loader = &loader, .first_epoch_over = step.before.data.epoch == 0 && step.after.data.epoch > 0});
  if (step.after.data.epoch != step.before.data.epoch || step.losses.step == config_.training.steps) report_cut_texts(step, loader.cuts);
  window_.samples += step.losses.samples;
  window_.wait_seconds += step.losses.wait_seconds;
  for (const auto& [name, used] : step.losses.used) {
    at::Tensor& any = window_.used[name];
    any = any.defined() ? any | used : used;
  }
}

void TrainingMonitor::report_cut_texts(const TrainedStep& step, const std::map<std::string, TextCuts>& cuts) {
  if (!run_.tokenizer) return;
  cuts_ = report_cuts(step.before.data.epoch, run_.tokenizer->context_length(), std::exchange(cuts_before_, cuts), cuts);
  for (const std::string& line : cuts_.lines) log_.line(line);
  cuts_step_ = step.losses.step;
}

void TrainingMonitor::leave_out(const std::function<void()>& body) {
  const double begin = clock_();
  body();
  if (window_.begin) window_.left_out += clock_() - begin;
}

std::vector<TrainedStep> TrainingMonitor::read_back() {
  std::vector<TrainedStep> out = std::exchange(unread_, {});
  for (TrainedStep& step : out) {
    step.row = row_of(step);
    step.decided = static_cast<NonFiniteGuard::StepDecision>(step.decision.item<std::int64_t>());
    if (step.scale.defined()) step.before.loss_scale = GradScaler::state_of(step.scale);
  }
  return out;
}

MetricsRow TrainingMonitor::row_of(const TrainedStep& step) const {
  const at::Tensor read = step.numbers.to(at::kCPU, at::kDouble);
  const double* next = read.const_data_ptr<double>();
  MetricsRow row;
  static_cast<RowPlace&>(row) = place_of(step.after);
  row.step = step.losses.step;
  row.learning_rate = step.learning_rate;
  row.loss = *next++;
  row.grad_norm = *next++;
  for (const auto& [name, term] : step.losses.terms) row.terms.emplace_back(name, *next++);
  for (const auto& [name, statistic] : step.losses.statistics) row.statistics.emplace_back(name, *next++);
  for (const std::string& name : grad_norm_names_) row.grad_norms.emplace_back(name, *next++);
  return row;
}

RowPlace TrainingMonitor::place_of(const RunState& state) const {
  const std::int64_t of_epoch = run_.loader->batches_per_epoch() * config_.data.loader.batch_size * group_.size();
  const double share = of_epoch > 0 ? static_cast<double>(state.data.cursor) / static_cast<double>(of_epoch) : 0;
  return {.step = state.step,
          .time = utc_time(),
          .epoch = static_cast<double>(state.data.epoch) + std::min(share, 1.0),
          .samples = state.samples};
}

std::vector<std::pair<std::string, double>> TrainingMonitor::unused_shares() const {
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, used] : window_.used) {
    at::Tensor by_any_rank = used.to(at::kInt);
    group_.all_reduce(by_any_rank, Reduction::max);
    out.emplace_back(name, 1 - by_any_rank.to(at::kDouble).mean().item<double>());
  }
  return out;
}

void TrainingMonitor::add_slowest_rank(MetricsRow& row, double seconds) const {
  if (group_.size() == 1) return;
  std::vector<double> computed;
  for (const std::vector<DeviceSeconds>& step : window_.forward)
    computed.push_back(std::accumulate(step.begin(), step.end(), 0.0, [](double sum, const DeviceSeconds& each) { return sum + each(); }));
  const at::Tensor own = at::stack({at::tensor(window_.waited_for_ranks, at::kDouble), at::tensor(computed, at::kDouble)});
  const at::Tensor all = group_.all_gather(own.unsqueeze(0));  // [ranks, 2, steps]
  row.slowest = slowest_rank(all.select(1, 0), all.select(1, 1));
  row.slowest->host = group_.broadcast_text(host_name(), row.slowest->rank);
  row.rank_wait_share = seconds > 0 ? row.slowest->seconds / seconds : 0;
}

void TrainingMonitor::add_logit_scales(MetricsRow& row) const {
  for (const auto& [name, tensor] : objective_state(*run_.objective)) {
    if (tensor.numel() != 1 || (!name.ends_with("logit_scale") && !name.ends_with("logit_bias"))) continue;
    const double value = tensor.item<double>();
    if (name == "logit_scale")
      row.logit_scale = value;
    else if (name == "logit_bias")
      row.logit_bias = value;
    else  // of one objective of a sum
      row.statistics.emplace_back(name, value);
  }
}

void TrainingMonitor::record(MetricsRow row, const RunState& now) {
  advise_on({.step = row.step, .terms = &row.terms});
  if (row.step % config_.log.every_steps != 0 && row.step != config_.training.steps) return;
  add_logit_scales(row);
  for (auto& unused : unused_shares()) row.statistics.push_back(std::move(unused));
  if (row.step >= cuts_step_) row.cut = std::exchange(cuts_.shares, {});
  const double end = clock_(), seconds = end - window_.begin.value_or(end) - window_.left_out;
  row.samples_per_second = seconds > 0 ? static_cast<double>(window_.samples) / seconds : 0;
  row.wait_share = seconds > 0 ? window_.wait_seconds / seconds : 0;
  add_slowest_rank(row, seconds);
  row.seconds = now.seconds;
  row.tflops = mfu_.tflops(row.samples_per_second / group_.size());
  row.mfu = mfu_.share(row.tflops);
  if (const auto line = mfu_.news()) log_.line(*line);
  const MemoryUse memory = memory_use(run_.device);
  row.resident = memory.resident;
  row.resident_peak = memory.resident_peak;
  row.device_peak = memory.device_peak;
  const LoaderStatistics loader = run_.loader->statistics();
  const DataWindow data{seconds, window_.wait_seconds, loader.work_seconds - window_.loader.work_seconds,
                        loader.cpu_seconds - window_.loader.cpu_seconds};
  advise_on({.data = data, .now = now.seconds});
  const std::int64_t waited = loader.cache_misses - window_.loader.cache_misses;
  const std::int64_t reads = waited + loader.cache_hits - window_.loader.cache_hits;
  if (reads > 0 && seconds > 0) {  // of remote files, by this rank
    const auto fetched = static_cast<double>(loader.fetched_bytes - window_.loader.fetched_bytes);
    row.statistics.emplace_back("fetched_mib_per_second", fetched / seconds / (1 << 20));
    row.statistics.emplace_back("fetch_retries", static_cast<double>(loader.fetch_retries - window_.loader.fetch_retries));
    row.statistics.emplace_back("waited_for_fetch", static_cast<double>(waited) / static_cast<double>(reads));
  }
  window_ = {.begin = end, .loader = loader};
  row.warnings = std::exchange(warnings_, {});
  log_.record(row);
  if (log_.page_due()) show(now);
}

void TrainingMonitor::evaluated(const RunState& now, const std::vector<std::pair<std::string, double>>& metrics,
                                const nlohmann::json& result) {
  log_.evaluated(place_of(now), metrics, result);
}

void TrainingMonitor::show(const RunState& now, const std::string& state, bool good, const std::string& note) {
  RunStatus status{.state = state, .good = good, .note = note, .step = now.step};
  status.samples = now.samples;
  status.seconds = now.seconds;
  status.skipped = run_.loader->statistics().skipped;
  log_.write_page(std::move(status));
}

}  // namespace tessera
