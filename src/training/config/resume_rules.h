#pragma once

#include <string>
#include <vector>

#include <tessera/config/node.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// A setting that differs between two configurations. List items are addressed by index: "data.train.sources.0.weight". If a module is
/// replaced by another, only the key `name` counts as changed, not the settings of the two modules.
struct Change {
  std::string key;
  std::string before, now;  // the values as text; "nothing" if the key does not exist

  /// Returns a text like "optimizer.lr: 0.1 there, 0.2 here".
  std::string text() const;
};

/// Returns all differences, in the order of the second tree.
std::vector<Change> changes(const config::Node& before, const config::Node& now);

/// Returns true if the pattern matches the key or one of the groups that contain it. In a pattern, * matches one part of a key and
/// ** any number of parts: "data.train.**.path" matches data.train.path and data.train.sources.0.source.path.
bool stands_for(const std::string& pattern, const std::string& key);

/// Returns the patterns of the settings that may differ in a resumed run; docs/training.md lists them with reasons.
const std::vector<std::string>& keys_free_to_change();

/// The settings that differ between a resumed run and the run that wrote the checkpoint.
struct ResumeChanges {
  std::vector<Change> free;     // changes of settings that match keys_free_to_change()
  std::vector<Change> allowed;  // further changes, which the user allows explicitly
  std::vector<Change> refused;
  // the numbers of samples per update
  std::int64_t samples_before = 0, samples_now = 0;
};

/// The numbers of ranks of the run that wrote a checkpoint, and of the run that resumes from it.
struct RankCounts {
  int before = 1, now = 1;
};

/// Compares the checkpoint's resolved YAML `before` with the current configuration `now`. `allowed` are patterns for the settings that the
/// user allows to differ. If `now` has `training.micro_batch: auto`, this setting does not count as changed, because the run then uses the
/// checkpoint's value. data.loader.batch_size and training.global_batch may change if the number of samples per update stays the same.
/// Throws UserError for a pattern that matches no setting of either configuration.
ResumeChanges resume_changes(const std::string& before, const Config& now, const std::vector<std::string>& allowed,
                             const RankCounts& ranks = {});

/// Returns the error message for refused changes. It lists the changes and what the user can do.
std::string refusal(const std::vector<Change>& refused);

}  // namespace tessera
