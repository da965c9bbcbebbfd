#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/remote/client.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// The copy of a run's folder in a store (run.mirror). The objects have the names of the files: ADDRESS/checkpoints/step_0000100/..., and
/// so on. Of a checkpoint, the manifest is stored last and deleted first, and `latest` and `best` are stored after the checkpoints that they
/// name, so a reader sees only whole checkpoints. Used by rank 0, by one thread at a time; if each machine has a local folder of its own, also
/// by the first rank of each other machine, while rank 0 waits.
///
/// The object ADDRESS/trainer.lock names the trainer that began last. An earlier one that still runs notices this before it stores the next
/// checkpoint, and ends.
class RunMirror {
 public:
  /// `folder` is the run's local folder, and `trainer` the same name for all ranks of a trainer.
  RunMirror(const Config& config, const std::string& folder, std::string trainer = new_trainer_name());
  /// Returns a name that no other trainer has.
  static std::string new_trainer_name();

  /// Begins a session, in which this process alone stores this run. Ends the uploads that killed processes have begun.
  ///
  /// If `resume` is auto, and the store's newest undamaged checkpoint is of a later step than the local folder's newest intact one, or
  /// another one of the same step, fetches it, the best checkpoint, and all files of the run but its other checkpoints. These replace the
  /// local files. With another `resume`, first refuses a store with checkpoints that the local folder lacks. Throws UserError.
  void begin(const std::string& resume);
  /// Returns the step of the local folder's newest intact checkpoint, which `latest` then names; -1 if there is none.
  std::int64_t newest_here() const;

  /// Stores the checkpoints of the local folder, up to the one that `latest` names, that the store lacks or has with another manifest. Then
  /// stores all other files of the run that have changed since the last call, and deletes those checkpoints that CheckpointFolder would
  /// delete. Throws UserError; the next call then continues.
  void update();
  /// Does the same at the end of the run. Throws UserError that says how to store the rest.
  void finish();

  /// Throws UserError if another trainer has taken over, as far as update() has seen. Any thread may call this.
  void check_owner() const;

  /// Fetches the store's checkpoint of this name (step_0000100), unless the local folder has it. For machines that do not see rank 0's
  /// folder. Throws UserError.
  void fetch(const std::string& step);
  /// Deletes all checkpoints of the local folder. Throws UserError.
  void forget_checkpoints();

 private:
  using Objects = std::map<std::string, remote::ObjectState>;  // by name in the folder
  using Facts = std::pair<std::uintmax_t, std::filesystem::file_time_type>;  // a local file's size and time

  Objects list();
  std::string text_of(const std::string& name, const remote::ObjectState& state);
  void check_owner(const Objects& objects);
  void fetch(const std::string& name, const remote::ObjectState& state, const std::filesystem::path& to);
  void fetch_newest();
  void fetch_checkpoint(const std::string& step, const Objects& objects);
  void fetch_files(const Objects& objects);
  void fetch_best(const std::vector<std::string>& steps, const Objects& objects);
  bool is_here(const std::string& step, const Objects& objects);
  void name_latest(std::int64_t step) const;
  Facts facts_of(const std::string& name) const;
  bool is_stored(const std::string& step, const Objects& objects);
  void store_checkpoint(const std::filesystem::path& checkpoint);
  void store_file(const std::string& name);
  void store_run_files();
  void clear_checkpoint(const std::string& step, const Objects& objects);
  void remove_checkpoint(const std::string& step, const Objects& objects);

  const CheckpointSettings keep_;
  const std::filesystem::path folder_;
  const std::string address_;  // ends in /
  remote::Client client_;
  const std::string owner_;  // this trainer, as its lock names it
  mutable std::mutex mutex_;
  std::string other_;  // guarded by the mutex: the process that has taken over; empty: none
  std::vector<std::filesystem::path> left_out_;  // folders of stored features, which trainer --write-features makes again
  // The files stored so far, and the manifests found in the store. No facts: the store's checkpoint is damaged.
  std::map<std::string, Facts> stored_;
};

}  // namespace tessera
