// The parts of Trainer that make the ranks of a run agree.
#include <filesystem>

#include <ATen/ATen.h>

#include "src/distributed/agreement.h"
#include "src/training/config/resume_rules.h"
#include "src/training/interrupt.h"
#include "src/training/trainer.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/checkpoints", error);
  if (error) user_error(folder, ": cannot create the run folder: ", error.message());
}

void check_same_configuration(const Config& config, const ProcessGroup& group) {
  const std::string own = to_yaml(config), first = group.broadcast_text(own);
  run_on_all_ranks(group, "comparing configurations", [&] {
    if (own == first) return;
    const std::vector<Change> other = changes(config::parse_yaml(first, "rank 0"), config::parse_yaml(own, "this rank"));
    user_error("rank ", group.rank(), " has a different configuration than rank 0: ",
               other.empty() ? "a different order of keys" : other.front().text(),
               ": start all ranks with the same file and overrides");
  });
}

}  // namespace

FolderUse folder_use(const Config& config, const ProcessGroup& group) {
  FolderUse out{.keeps = group.first()};
  if (group.alone()) return out;
  const MachineRanks here = ranks_on_this_machine(group);
  out.separate = here.count < group.size() && works_in_cache(config);
  out.keeps = out.keeps || (out.separate && here.first == group.rank());
  return out;
}

std::unique_ptr<io::FileLock> take_run_folder(const Config& config, const ProcessGroup& group, const FolderUse& use) {
  check_same_configuration(config, group);
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

std::unique_ptr<RunMirror> begin_mirror(const Config& config, const std::string& resume, const ProcessGroup& group, const FolderUse& use) {
  std::unique_ptr<RunMirror> mirror;
  if (!config.run.mirror) return mirror;
  run_on_all_ranks(group, "looking into run.mirror", [&] {
    if (use.keeps) mirror = std::make_unique<RunMirror>(config, config.run.path());
    if (group.first()) mirror->begin(resume);
  });
  return mirror;
}

void Trainer::bring_to_other_machines(const std::string& folder, std::int64_t step) {
  if (folder.empty() || !use_.separate) return;
  run_on_rank0(group_, "storing the checkpoint", [&] {
    if (!checkpoints_.is_own(folder, step))
      user_error("--resume ", folder, ": the ranks are on several machines, which have only the checkpoints of run.folder: continue with "
                 "--resume auto, or begin with these weights (start.weights)");
    mirror_->update();  // rank 0 may have a checkpoint that an earlier session has not stored
    return true;
  });
  run_on_all_ranks(group_, "fetching the checkpoint", [&] {
    if (mirror_ && !group_.first()) mirror_->fetch(std::filesystem::path(folder).filename());
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
