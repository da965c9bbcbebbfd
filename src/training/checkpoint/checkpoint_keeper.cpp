#include "src/training/checkpoint/checkpoint_keeper.h"

#include <filesystem>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "src/distributed/agreement.h"
#include "src/remote/local_copy.h"
#include "src/training/checkpoint/checkpoint_commands.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

void copy_tensors(std::map<std::string, at::Tensor>& tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name, RunMirror* mirror)
    : folder_(std::move(folder)), settings_(std::move(settings)), run_name_(std::move(run_name)), mirror_(mirror) {}

void CheckpointWriter::begin(Checkpoint checkpoint, bool stands_still, std::function<void()> others) {
  if (settings_.background && !stands_still) {
    finish();
    for (auto* tensors : {&checkpoint.model.weights, &checkpoint.optimizer, &checkpoint.ema, &checkpoint.teacher})
      copy_tensors(*tensors);
    written_ = std::async(std::launch::async, [this, others, whole = std::move(checkpoint)] { return write(whole, others); });
  } else {
    written_ = std::async(std::launch::deferred, [this, others, whole = std::move(checkpoint)] {
      std::string target = write(whole, others);
      finish();
      return target;
    });
  }
}

std::string CheckpointWriter::collect() {
  return written_.get();
}

void CheckpointWriter::later(std::function<void()> task) {
  stored_ = std::async(std::launch::async, [earlier = std::move(stored_), task = std::move(task)] {
    if (earlier.valid()) earlier.wait();
    try {
      task();
    } catch (const std::exception& error) {
      log::warning(error.what(), "; the checkpoint itself is written, and training continues");
    }
  });
}

void CheckpointWriter::finish() {
  if (stored_.valid()) stored_.wait();
}

std::string CheckpointWriter::write(const Checkpoint& checkpoint, const std::function<void()>& others) {
  // An earlier checkpoint may still be on its way to storage. A run that is about to be killed writes this one first.
  std::string target = folder_.save(checkpoint, /*before_deleting=*/[this] { finish(); }, others);
  if (settings_.copy_to) later([this, target] { copy_checkpoint(target, *settings_.copy_to); });
  if (settings_.command) later([this, target] {
      run_shell_command("checkpoint.command", *settings_.command, {target, run_name_}, "for " + target);
    });
  if (mirror_ != nullptr) later([this] { mirror_->update(); });
  return target;
}

void PartWriter::begin(std::int64_t step, bool background, std::function<void()> write) {
  step_ = step;
  pending_ = true;
  failed_ = false;
  all_ = {};
  own_ = std::async(background ? std::launch::async : std::launch::deferred, std::move(write));
}

PartWriter::Told PartWriter::told() {
  if (!pending_) return {.done = step_, .failed = failed_};
  if (own_.valid() && own_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) return {.done = step_ - 1, .failed = false};
  if (own_.valid()) {
    try {
      own_.get();
    } catch (const std::exception& error) {
      failed_ = true;
      log::error("step ", step_, ": this rank's part of the checkpoint is not written: ", error.what());
    }
  }
  return {.done = step_, .failed = failed_};
}

void PartWriter::hear(const Told& all) {
  if (!pending_ || all.done < step_) return;
  pending_ = false;
  all_.set_value(all.failed);
}

void PartWriter::settle(const ProcessGroup& group) {
  if (!pending_) return;
  if (own_.valid()) own_.wait();
  const Told own = told();
  Agreement all(group, "saving the checkpoint", nullptr, {-own.done, own.failed ? 1 : 0});
  hear({.done = -all.maxima()[0], .failed = all.maxima()[1] != 0});
}

std::function<void()> PartWriter::others() {
  return [done = all_.get_future().share()] {
    if (done.get()) user_error("a rank could not write its part of the checkpoint: its own log says why");
  };
}

PartWriter::~PartWriter() {
  if (pending_) all_.set_value(true);
}

namespace fs = std::filesystem;

namespace {

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Stores each rank's position in the data, and the position that is furthest ahead, in `state`.
void gather_positions(RunState& state, const DataPosition& own, const ProcessGroup& group) {
  const at::Tensor all = group.all_gather(at::tensor({own.epoch, own.cursor}, at::kLong)).view({group.size(), 2});
  state.ranks.clear();
  state.data = own;
  for (int rank = 0; rank < group.size(); ++rank) {
    const DataPosition there{all[rank][0].item<std::int64_t>(), all[rank][1].item<std::int64_t>()};
    state.ranks.push_back(there);
    if (std::tie(there.epoch, there.cursor) > std::tie(state.data.epoch, state.data.cursor)) state.data = there;
  }
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(const Config& config, const ProcessGroup& group, const TrainingRun& run,
                                   const std::string& folder, bool separate, RunMirror* mirror, ReportError report_error)
    : config_(config),
      group_(group),
      run_(run),
      run_folder_(folder),
      separate_(separate),
      mirror_(mirror),
      report_error_(std::move(report_error)),
      folder_(folder + "/checkpoints", config.checkpoint.keep_last, config.checkpoint.keep_every),
      writer_(folder_, config.checkpoint, config.run.name.value_or("run"), mirror) {}

// Returns the newest checkpoint in the run's folder. If there is none, returns the one that checkpoint.fetch_command fetches.
std::optional<std::pair<std::string, Checkpoint>> CheckpointKeeper::newest() const {
  const std::optional<std::string>& fetch = config_.checkpoint.fetch_command;
  if (!fetch) return load_newest_checkpoint(folder_);
  try {
    if (auto own = load_newest_checkpoint(folder_)) return own;
  } catch (const UserError& error) {
    log::warning(error.what(), "; trying checkpoint.fetch_command");
  }
  log::info("no checkpoint in ", run_folder_, ": running checkpoint.fetch_command");
  auto fetched = fetch_checkpoint(*fetch, config_.run.name.value_or("run"), run_folder_ + "/checkpoints");
  log::info("checkpoint.fetch_command: ", fetched ? "fetched " + fetched->first : "nothing is stored yet");
  return fetched;
}

std::optional<std::pair<std::string, Checkpoint>> CheckpointKeeper::choose(const std::string& resume) const {
  folder_.remove_leftovers();
  const std::vector<std::string> own = folder_.list();
  if (resume == "none") {
    if (!own.empty())
      user_error(run_folder_, ": already holds checkpoints up to step ", step_of(own.back()),
                 ": continue with --resume auto, or choose another run.folder");
    return std::nullopt;
  }
  if (resume == "auto") {
    auto found = newest();
    if (!found) log::info("--resume auto: no checkpoint in ", run_folder_, ", starting at step 0");
    return found;
  }
  const std::string copy = remote::local_copy(resume, remote::Wanted::everything);
  const std::string from = (fs::path(copy) / "").parent_path().string();  // without the slash that a shell's completion adds
  if (const std::string named = named_checkpoint(from); !named.empty()) return choose(named);

  std::pair<std::string, Checkpoint> chosen;
  if (fs::is_directory(from + "/checkpoints")) {
    auto newest = load_newest_checkpoint(CheckpointFolder(from + "/checkpoints", 1));
    if (!newest) user_error("--resume ", resume, ": no checkpoint in this run folder");
    chosen = std::move(*newest);
  } else if (fs::exists(from + "/manifest.json")) {
    chosen = {from, load_checkpoint(from)};
  } else {
    user_error("--resume ", resume,
               ": expected auto, none, a run folder or a folder like RUN/checkpoints/step_0001000");
  }
  for (const std::string& folder : own)
    if (step_of(folder) > chosen.second.state.step ||
        !same_folder(fs::path(folder).parent_path(), fs::path(chosen.first).parent_path()))
      user_error(run_folder_, ": already holds its own checkpoints up to step ", step_of(own.back()),
                 ": choose another run.folder to continue from ", chosen.first, ", or delete them");
  return chosen;
}

bool CheckpointKeeper::is_own(const std::string& checkpoint, std::int64_t step) const {
  return same_folder(run_folder_ + "/checkpoints/" + step_folder_name(step), checkpoint);
}

void CheckpointKeeper::resumed_from(const std::string& checkpoint, std::int64_t step) {
  last_good_ = checkpoint;
  if (is_own(checkpoint, step)) last_saved_ = step;  // `--resume auto` finds no checkpoint outside this run's folder
  if (!config_.checkpoint.keep_best || !group_.first()) return;
  best_ = BestFile(run_folder_ + "/checkpoints", *config_.checkpoint.keep_best).read();
  if (best_ && best_->step > step) best_.reset();  // forgets a best checkpoint of a later step, because that step will be trained again
}

bool CheckpointKeeper::overdue() const {
  const std::chrono::duration<double, std::ratio<60>> minutes = Clock::now() - last_save_;
  const double limit = config_.checkpoint.every_minutes;
  return limit > 0 && minutes.count() >= limit;
}

void CheckpointKeeper::save(const RunState& state, bool must) {
  last_save_ = Clock::now();
  parts_.settle(group_);
  if (last_saved_ == state.step) {
    if (!must) return;
    // The checkpoint of this step may not be completely written yet, or writing it may have failed.
    const bool saved = run_on_rank0(group_, "saving the checkpoint", [&] {
      if (!collect(false) || !is_own(last_good_, state.step)) return false;
      writer_.finish();
      return true;
    });
    if (saved) return;
  }
  const bool in_parts = run_.optimizer->is_sharded() && !separate_;
  Checkpoint whole = in_parts ? describe(state) : gather(state);
  const bool has_averages = !whole.ema.empty() || !whole.teacher.empty();
  const bool by_several = in_parts || (group_.size() > 1 && !separate_ && has_averages && whole.updates.empty());
  if (by_several ? save_parts(std::move(whole), must)
                 : run_on_rank0(group_, "saving the checkpoint", [&] { return write(std::move(whole), must); }))
    last_saved_ = state.step;
}

// Every rank writes its part of the optimizer's state and its share of the checkpoint. Returns whether the save has begun or, with `must`,
// is done.
bool CheckpointKeeper::save_parts(Checkpoint checkpoint, bool must) {
  const std::int64_t step = checkpoint.state.step;
  const bool background = config_.checkpoint.background && !must;
  const bool prepared = run_on_rank0(group_, "saving the checkpoint", [&] {
    collect(false);
    try {
      folder_.prepare(step);
      return true;
    } catch (const UserError& error) {
      if (must) throw;
      report_error_(concat("step ", step, " is not saved: ", error.what(), "; training continues, and the next save tries again"));
      return false;
    }
  });
  if (!prepared) return false;
  Checkpoint share = share_of(std::move(checkpoint), group_.rank(), group_.size()), averages;
  if (!group_.first()) averages = std::move(share);  // rank 0's share is written by its CheckpointWriter
  std::optional<StatePart> part;
  if (run_.optimizer->is_sharded()) part = run_.optimizer->part();
  if (background) {
    for (auto* tensors : {&averages.ema, &averages.teacher}) copy_tensors(*tensors);
    std::map<std::string, at::Tensor> elements = part ? part->read() : std::map<std::string, at::Tensor>();
    copy_tensors(elements);
    if (part) part->read = [elements] { return elements; };
  }
  parts_.begin(step, background, [this, step, part = std::move(part), averages = std::move(averages)] {
    folder_.write_part(step, part, averages, group_.rank(), group_.size());
  });
  std::function<void()> others = parts_.others();
  if (!background) parts_.settle(group_);
  return run_on_rank0(group_, "saving the checkpoint", [&] { return write(std::move(share), must, std::move(others)); });
}

void CheckpointKeeper::finish_mirror() {
  run_on_rank0(group_, "storing the run", [&] {
    if (mirror_ == nullptr) return false;
    writer_.finish();
    mirror_->finish();
    return true;
  });
}

bool CheckpointKeeper::write(Checkpoint checkpoint, bool must, std::function<void()> others) {
  if (mirror_ != nullptr) mirror_->check_owner();
  collect(false);
  writing_step_ = checkpoint.state.step;
  writer_.begin(std::move(checkpoint), /*stands_still=*/must, std::move(others));
  return config_.checkpoint.background && !must ? true : collect(must);
}

bool CheckpointKeeper::collect(bool must) {
  if (!writer_.pending()) return true;
  try {
    last_good_ = writer_.collect();
    return true;
  } catch (const UserError& error) {
    const std::string kept =
        last_good_.empty() ? "there is no earlier checkpoint" : "the previous checkpoint is " + last_good_;
    const std::string text = concat("step ", writing_step_, " is not saved: ", error.what(), "; ", kept);
    if (must) user_error(text);
    report_error_(text + "; training continues, and the next save tries again");
    return false;
  }
}

bool CheckpointKeeper::is_best(const MeasuredMetrics& measured) {
  if (!config_.checkpoint.keep_best) return false;
  const KeepBestSettings& settings = *config_.checkpoint.keep_best;
  std::optional<double> value;
  try {
    value = judged_value(settings, measured);
  } catch (const UserError& error) {
    if (!std::exchange(reported_not_measured_, true)) report_error_(error.what());
  }
  if (!value) return false;
  judged_ = *value;
  return !best_ || (greater_is_better(settings) ? *value > best_->value : *value < best_->value);
}

void CheckpointKeeper::save_best(const RunState& state) {
  save(state, /*must=*/false);
  // If the process died before the best checkpoint is named, a resumed run would not know it.
  const bool written = wait();
  if (!group_.first() || !written || !is_own(last_good_, state.step)) return;
  const BestCheckpoint best{state.step, judged_};
  const KeepBestSettings& settings = *config_.checkpoint.keep_best;
  try {
    BestFile(run_folder_ + "/checkpoints", settings).write(best);
  } catch (const UserError& error) {
    return report_error_(error.what());
  }
  best_ = best;
  if (const auto& copies = config_.checkpoint.copy_to)
    writer_.later([file = BestFile(*copies, settings), best] { file.write(best); });  // after the checkpoint itself is copied
  if (mirror_ != nullptr) writer_.later([this] { mirror_->update(); });
}

Checkpoint CheckpointKeeper::gather(RunState state) const {
  Checkpoint checkpoint = describe(std::move(state));
  checkpoint.optimizer = run_.optimizer->gather_state();
  return checkpoint;
}

Checkpoint CheckpointKeeper::describe(RunState state) const {
  if (group_.size() > 1) gather_positions(state, run_.loader->position(), group_);
  Checkpoint checkpoint;
  checkpoint.config = to_yaml(config_);
  checkpoint.data = run_.data_fingerprint;
  checkpoint.tuning = run_.tuning;
  checkpoint.state = std::move(state);
  checkpoint.optimizer["step"] = at::scalar_tensor(run_.optimizer->steps_taken(), at::kLong);
  if (run_.ema) checkpoint.ema = run_.ema->averages();
  if (run_.teacher) checkpoint.teacher = run_.teacher->ema.averages();
  checkpoint.model = {config_.model,
                      config_.tokenizer.value_or(config::ModuleSettings{}),
                      run_.tokenizer ? run_.tokenizer->vocabulary_bytes() : "",
                      collect_weights(*run_.model, *run_.objective),
                      {{"config", checkpoint.config}, {"step", std::to_string(checkpoint.state.step)}},
                      run_.published};
  const std::vector<std::int64_t> widths = run_.objective->nested_widths();
  if (!widths.empty()) checkpoint.model.extra[kNestedWidths] = c10::Join(" ", widths);
  checkpoint.updates = weight_updates(*run_.model);
  return checkpoint;
}

}  // namespace tessera
