// The parts of Trainer that make the ranks of a run agree.
#include <filesystem>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/base/host.h"
#include "src/distributed/agreement.h"
#include "src/training/config/resume_rules.h"
#include "src/training/interrupt.h"
#include "src/training/trainer.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/checkpoints", error);
  if (error) user_error(folder, ": cannot create the run folder: ", error.message());
}

void check_same_configuration(const Config& config, const ProcessGroup& group) {
  Config compared = config;
  if (config.run.mirror) compared.run.folder.reset();  // each machine may have its own
  const std::string own = to_yaml(compared), first = group.broadcast_text(own);
  run_on_all_ranks(group, "comparing configurations", [&] {
    if (own == first) return;
    const std::vector<Change> other = changes(config::parse_yaml(first, "rank 0"), config::parse_yaml(own, "this rank"));
    user_error("rank ", group.rank(), " has a different configuration than rank 0: ",
               other.empty() ? "a different order of keys" : other.front().text(),
               ": start all ranks with the same file and overrides");
  });
}

// Returns whether all machines see the run's folder of rank 0: whether they find a file that rank 0 writes there.
bool is_folder_shared(const std::string& folder, const ProcessGroup& group, const MachineRanks& here) {
  const std::string file = concat(folder, "/.seen_", hexadecimal(fingerprint(group.broadcast_text(RunMirror::new_trainer_name()))));
  run_on_rank0(group, "making the run folder", [&] {
    make_folder(folder);
    io::write_file(file, "");
    return true;
  });
  std::error_code ignored;
  const bool seen = std::filesystem::exists(file, ignored), other = here.first != 0;
  Agreement all(group, "looking for the run folder", nullptr, {other && seen ? 1 : 0, other && !seen ? 1 : 0});
  const bool some_see = all.maxima()[0] != 0, some_do_not = all.maxima()[1] != 0;
  if (group.first()) std::filesystem::remove(file, ignored);
  if (some_see && some_do_not)
    user_error(folder, ": some machines see this folder of rank 0, and others do not: set run.folder to a folder that all see, or that each "
               "machine has for itself");
  return some_see;
}

}  // namespace

FolderUse folder_use(const Config& config, const ProcessGroup& group) {
  FolderUse out{.keeps = group.first()};
  check_same_configuration(config, group);
  if (group.alone() || !config.run.mirror) return out;
  const MachineRanks here = ranks_on_this_machine(group);
  out.separate = here.count < group.size() && !is_folder_shared(config.run.path(), group, here);
  out.keeps = out.keeps || (out.separate && here.first == group.rank());
  return out;
}

std::unique_ptr<io::FileLock> take_run_folder(const Config& config, const ProcessGroup& group, const FolderUse& use) {
  std::unique_ptr<io::FileLock> lock;
  run_on_all_ranks(group, "taking the run folder", [&] {
    if (!use.keeps) return;
    const std::string folder = config.run.path();
    make_folder(folder);
    std::string holder;
    lock = io::FileLock::take(folder + "/trainer.lock", holder);
    if (!lock)
      user_error(folder, ": another trainer is using this run folder (", holder,
                 "): wait until it ends, stop it, or choose another run.folder");
  });
  return lock;
}

namespace {

// Another machine than rank 0's may have the newest checkpoint, which it could not store before. It stores this checkpoint now, and rank 0
// fetches it.
void take_newest_of_machines(RunMirror* mirror, const std::string& resume, const ProcessGroup& group) {
  std::int64_t own = -1;
  run_on_all_ranks(group, "looking for checkpoints", [&] {
    if (mirror != nullptr) own = mirror->newest_here();
    if (!group.first() && own >= 0 && resume != "auto")
      user_error("run.folder of ", host_name(), ": already holds checkpoints up to step ", own,
                 ": continue with --resume auto, or choose another run.folder");
  });
  const auto newest = group.all_gather(at::full({1}, own, at::kLong)).argmax().item<std::int64_t>();
  if (newest == 0) return;
  run_on_all_ranks(group, "storing the newest checkpoint", [&] {
    if (group.rank() == newest) mirror->update();
  });
  run_on_rank0(group, "fetching the newest checkpoint", [&] { return mirror->begin("auto"), true; });
}

}  // namespace

std::unique_ptr<RunMirror> begin_mirror(const Config& config, const std::string& resume, const ProcessGroup& group, const FolderUse& use) {
  std::unique_ptr<RunMirror> mirror;
  if (!config.run.mirror) return mirror;
  const std::string trainer = group.broadcast_text(RunMirror::new_trainer_name());
  run_on_all_ranks(group, "looking into run.mirror", [&] {
    if (use.keeps) mirror = std::make_unique<RunMirror>(config, config.run.path(), trainer);
    if (group.first()) mirror->begin(resume);
  });
  if (use.separate) take_newest_of_machines(mirror.get(), resume, group);
  return mirror;
}

void store_finished_stage(const Config& config, const ProcessGroup& group) {
  if (!config.run.mirror) return;
  const FolderUse use = folder_use(config, group);
  const std::unique_ptr<io::FileLock> lock = take_run_folder(config, group, use);
  const std::unique_ptr<RunMirror> mirror = begin_mirror(config, "auto", group, use);
  run_on_rank0(group, "storing the run", [&] { return mirror->finish(), true; });
}

std::string Trainer::bring_to_other_machines(const std::string& chosen, std::int64_t step) {
  if (chosen.empty() || !use_.separate) return chosen;
  run_on_rank0(group_, "storing the checkpoint", [&] {
    if (!checkpoints_.is_own(chosen, step))
      user_error("--resume ", chosen, ": the ranks are on several machines, which have only the checkpoints of run.folder: continue with "
                 "--resume auto, or begin with these weights (start.weights)");
    mirror_->update();  // the store may lack the checkpoint
    return true;
  });
  const std::string name = std::filesystem::path(chosen).filename();
  run_on_all_ranks(group_, "fetching the checkpoint", [&] {
    if (mirror_ && !group_.first()) mirror_->fetch(name);
  });
  return concat(folder_, "/checkpoints/", name);
}

void Trainer::forget_on_other_machines() {
  if (!use_.separate) return;
  run_on_all_ranks(group_, "deleting what the store has", [&] {
    if (mirror_ && !group_.first()) mirror_->forget_checkpoints();
  });
}

TrainingRun build_on_all_ranks(const Config& config, const ProcessGroup& group) {
  std::optional<TrainingRun> run;
  run_on_all_ranks(group, "building model and data", [&] { run = build_training_run(config, group); });
  return std::move(*run);
}

int Trainer::signal_of_ranks() const {
  at::Tensor signal = at::full({1}, interrupted(), at::kLong);
  group_.all_reduce(signal, Reduction::max);
  return static_cast<int>(signal.item<std::int64_t>());
}

}  // namespace tessera
