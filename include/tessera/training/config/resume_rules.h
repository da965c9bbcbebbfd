#pragma once

#include <string>
#include <vector>

#include <tessera/config/node.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// A setting that differs between two configurations. Items of lists go by their number: "data.train.sources.0.weight".
/// Where the names of two modules differ, that stands for all of their settings.
struct Change {
  std::string key;
  std::string before, now;  // "nothing": there is no such key

  /// "optimizer.lr: 0.1 there, 0.2 here".
  std::string text() const;
};

/// All of them, in the order of the second tree.
std::vector<Change> changes(const config::Node& before, const config::Node& now);

/// Whether a key is that of the pattern or lies below it; in a pattern, * stands for one part of a key and ** for any
/// number of them: "data.train.**.path" takes in data.train.path and data.train.sources.0.source.path.
bool stands_for(const std::string& pattern, const std::string& key);

/// Patterns of the settings that a resumed run may have otherwise; docs/training.md lists them, with reasons.
const std::vector<std::string>& keys_free_to_change();

/// What a run that goes on from a checkpoint has otherwise than the run had that wrote it.
struct ResumeChanges {
  std::vector<Change> free;     // of keys_free_to_change()
  std::vector<Change> allowed;  // let through by the user
  std::vector<Change> refused;
};

/// `before`: the resolved YAML of the checkpoint. allowed: patterns that the user lets through. A training.micro_batch
/// that is `auto` now is no change: it takes the checkpoint's. Throws UserError for a pattern that no setting of the two matches.
ResumeChanges resume_changes(const std::string& before, const Config& now, const std::vector<std::string>& allowed);

/// The line for those that are refused: which, and the ways out.
std::string refusal(const std::vector<Change>& refused);

}  // namespace tessera
