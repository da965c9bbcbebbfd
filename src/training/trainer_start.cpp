// The parts of Trainer that start or resume a run, log its start, and plan its memory.
#include <filesystem>
#include <random>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include "src/data/data_fingerprint.h"
#include "src/distributed/agreement.h"
#include "src/ops/tuning.h"
#include "src/training/config/published_towers.h"
#include "src/training/log/run_changes.h"
#include "src/training/restore.h"
#include "src/training/run/image_features.h"
#include "src/training/trainer.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {

std::string new_run_id() {
  std::random_device random;
  return concat(std::hex, random(), random());
}

std::string absolute_folder(const std::string& folder) {
  return fs::absolute(folder).lexically_normal().string();
}

// Returns true if `folder` is a run folder, and another one than `own`.
bool is_another_run(const std::string& folder, const std::string& own) {
  std::error_code ignored;
  return !folder.empty() && fs::exists(folder + "/checkpoints", ignored) && !fs::equivalent(folder, own, ignored);
}

// Logs the settings that differ from the checkpoint's. Important settings get a line each.
void tell_changes(const ResumeChanges& changes, std::int64_t step, std::int64_t steps) {
  std::string free;
  if (changes.samples_now != changes.samples_before)
    log::warning("an update now has ", changes.samples_now, " samples on all processes together, and it had ", changes.samples_before,
                 ": set training.global_batch=", changes.samples_before, " to keep the run as it was");
  for (const Change& change : changes.free) {
    if (change.key == "training.steps")
      log::warning("training.steps was ", change.before, " and is now ", change.now,
                   ": from now on the learning-rate schedule follows the new length");
    else
      free += (free.empty() ? "" : "; ") + change.text();
  }
  if (!free.empty()) log::info("settings that differ from the checkpoint's, which is allowed: ", free);
  for (const Change& change : changes.allowed)
    log::warning("changed at step ", step, " by --allow-changes: ", change.text());
  if (steps < step)
    log::warning("training.steps is ", steps, ", but ", step, " steps are already trained: there is nothing left to train");
}

}  // namespace

void Trainer::restore_or_initialize(const Resume& resume) {
  // Rank 0 chooses the checkpoint; the other ranks read the same checkpoint.
  std::optional<std::pair<std::string, Checkpoint>> chosen;
  std::string other_data;
  const bool has_other_data = run_on_rank0(group_, "looking for a checkpoint", [&] {
    run_.data_fingerprint = to_json(compute_fingerprints(*run_.train));
    if (run_.device.is_cuda()) run_.tuning = tuning_table().digest();
    chosen = checkpoints_.choose(resume.from);
    if (chosen)
      if (const std::string warning = check_tuning(run_, chosen->second, chosen->first, config_.training.deterministic); !warning.empty())
        log::warning(warning);
    if (chosen) other_data = check_data(run_, chosen->second, chosen->first, resume.allowed);
    return !other_data.empty();
  });
  const std::string folder =
      bring_to_other_machines(group_.broadcast_text(chosen ? chosen->first : ""), chosen ? chosen->second.state.step : 0);
  run_on_all_ranks(group_, "reading the checkpoint", [&] {
    if (!group_.first() && !folder.empty()) chosen = {folder, load_checkpoint(folder, /*verify=*/false)};
    if (chosen) {
      const auto& [place, checkpoint] = *chosen;
      ResumeChanges changes =
          apply_checkpoint(run_, config_, group_, checkpoint, place, resume.allowed, has_other_data);
      if (has_other_data) changes.allowed.push_back({"data.train", "the data of the checkpoint", other_data});
      go_on_from(checkpoint, place, changes);
    } else {
      const std::vector<std::string> warnings = load_initial_weights(run_, config_);
      if (group_.first())
        for (const std::string& line : warnings) log::warning(line);
      if (group_.first()) run_.published = start_parts(config_.start);
      if (group_.first()) note_changes(folder_, 0, {});
      state_.id = new_run_id();
      state_.folder = absolute_folder(folder_);
      monitor_.resume_at(0, state_.id);
    }
  });
  forget_on_other_machines();
  const std::map<std::string, at::Tensor> weights = collect_weights(*run_.model, *run_.objective);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : weights) tensors.push_back(tensor);
  broadcast_tensors(tensors, group_);
  run_on_rank0(group_, "checking the image features", [&] { return check_feature_weights(run_), true; });
  if (run_.ema && !chosen) run_.ema->restart();
  if (run_.teacher && !chosen) run_.teacher->ema.restart();
}

void Trainer::go_on_from(const Checkpoint& checkpoint, const std::string& folder, const ResumeChanges& changes) {
  state_ = checkpoint.state;
  state_.ranks.clear();
  scale_.restore(state_.loss_scale);
  if (group_.first()) note_changes(folder_, state_.step, changes.allowed);
  // A copy of a run must not continue the original's curves in a log service.
  if (!checkpoints_.is_own(folder, state_.step) || is_another_run(state_.folder, folder_)) state_.id = new_run_id();
  state_.folder = absolute_folder(folder_);
  monitor_.resume_at(state_.step, state_.id);
  checkpoints_.resumed_from(folder, state_.step);
  log::info("resumed from ", folder, ": step ", state_.step, ", epoch ", state_.data.epoch, ", sample ",
            state_.data.cursor);
  if (group_.first()) tell_changes(changes, state_.step, config_.training.steps);
}

void Trainer::warn_of_settings() const {
  for (const std::string& line : start_advice(run_, config_, group_.size())) log::warning(line);
}

void Trainer::print_plan() const {
  const std::int64_t batch = config_.data.loader.batch_size, sources = run_.loader->batches_per_update();
  const std::int64_t samples = batch * micro_batches(config_, run_);
  const std::string of_each = sources > 1 ? concat(" x ", sources, " sources") : "";
  const std::string ranks = group_.size() == 1 ? "" : concat(" x ", group_.size(), " ranks");
  log::info("run ", folder_, " on ", run_.device.str(), ranks, group_.alone() ? "" : " over " + group_.backend(), ", ",
            config_.training.precision, ", ", at::get_num_threads(), " threads");
  if (config_.run.mirror) log::info("the run is stored in ", *config_.run.mirror);
  if (const auto line = slow_precision(run_.device, config_.training.precision)) log::warning(*line);
  if (!run_.tuning.empty()) {
    const TuningTable& table = tuning_table();
    log::info("GPU kernels: tuning table ", run_.tuning, table.file.empty() ? "" : ", " + table.file);
    if (!table.outdated.empty()) log::warning(table.file, ": ", table.outdated, ": write the table anew with tessera-bench tune");
  }
  log::info("model: image tower ", config_.model.image.encoder.name, ", text tower ",
            config_.model.text ? config_.model.text->encoder.name : "none", "; objective ", config_.objective.name,
            ", optimizer ", config_.optimizer.name);
  if (!tiles_.empty()) log::info(tiles_);
  log::info("parameters ", describe(count_parameters(run_)));
  log::info("data: ", run_.train->describe(), "; ", with_thousands(samples * group_.size()), " samples per step (", batch,
            " x ", config_.training.accumulation, of_each, ranks, "), ",
            with_thousands(run_.loader->batches_per_epoch()), " batches per epoch; ",
            state_.step < config_.training.steps
                ? concat(with_thousands(config_.training.steps), " steps, from step ", state_.step)
                : concat(with_thousands(state_.step), " steps are trained, none are left"));
  if (run_.features)
    log::info("features of the image encoder: ", with_thousands(run_.features->manifest().samples), " images in ",
              run_.features->path(), ", ", run_.features->manifest().dtype);
}

PlanSettings Trainer::plan_settings() const {
  PlanSettings out;
  out.rank = group_.rank();
  out.ranks = group_.size();
  if (group_.alone()) return out;
  out.ranks_here = out.started = ranks_on_this_machine(group_).count;
  for (const NamedParameter& parameter : run_.optimizer->parameters())
    out.allocated += static_cast<std::int64_t>(parameter.tensor.nbytes());  // memory of the gradient reducer's buckets
  return out;
}

void Trainer::settle_micro_batch() {
  if (!config_.training.micro_batch.automatic) return;
  const PlanSettings settings = plan_settings();
  const std::int64_t batch = config_.data.loader.batch_size;
  MemoryPlan plan;
  run_on_all_ranks(group_, "measuring memory", [&] {
    plan = plan_memory(run_, config_, settings);
    if (!plan.fits())
      user_error("training.micro_batch auto: not even one sample at a time fits: it takes ", summary(plan), ": set ",
                 c10::Join(", or ", ways_out(plan, config_)));
  });
  at::Tensor samples = at::full({1}, plan.micro_batch, at::kLong);
  group_.all_reduce(samples, Reduction::min);
  config_.training.micro_batch = {false, samples.item<std::int64_t>()};
  log::info("training.micro_batch auto: ", samples.item<std::int64_t>(), " of ", batch,
            " samples at a time; planned memory ", summary(plan));
}

void Trainer::explain_out_of_memory() {
  const std::int64_t step = state_.step + 1, batch = config_.data.loader.batch_size;
  std::string advice = "see trainer --dry-run";
  try {
    PlanSettings settings;  // does not call plan_settings(), because that function communicates with other ranks, which may have failed
    settings.rank = group_.rank();
    settings.ranks = group_.size();
    const MemoryPlan plan = plan_memory(run_, config_, settings);
    advice = concat("it takes about ", summary(plan), ": set ", c10::Join(", or ", ways_out(plan, config_)));
  } catch (const std::exception&) {
    // If not even a few samples fit into memory, the message contains no measurements.
  }
  user_error("out of memory in step ", step, " with a batch of ", batch,
             group_.size() == 1 ? "" : concat(" on rank ", group_.rank()), ": ", advice);
}

}  // namespace tessera
