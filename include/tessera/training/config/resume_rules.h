#pragma once

#include <string>
#include <vector>

#include <tessera/config/node.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// A setting that differs between two configurations. List items are addressed by index: "data.train.sources.0.weight". If the
/// names of two modules differ, only the name is listed, not their settings.
struct Change {
  std::string key;
  std::string before, now;  // "nothing" if the key does not exist

  /// Returns "optimizer.lr: 0.1 there, 0.2 here".
  std::string text() const;
};

/// Returns all differences, in the order of the second tree.
std::vector<Change> changes(const config::Node& before, const config::Node& now);

/// Returns true if a key matches the pattern or is below a match. In a pattern, * matches one part of a key and ** any number of
/// parts: "data.train.**.path" matches data.train.path and data.train.sources.0.source.path.
bool stands_for(const std::string& pattern, const std::string& key);

/// Returns the patterns of the settings that may differ in a resumed run; docs/training.md lists them with reasons.
const std::vector<std::string>& keys_free_to_change();

/// The settings that differ between a resumed run and the run that wrote the checkpoint.
struct ResumeChanges {
  std::vector<Change> free;     // match keys_free_to_change()
  std::vector<Change> allowed;  // explicitly allowed by the user
  std::vector<Change> refused;
};

/// Compares the checkpoint's resolved YAML `before` with the current configuration. `allowed` are patterns that the user allows. A
/// training.micro_batch that is now `auto` does not count as a change, because it takes the checkpoint's value. Throws UserError
/// for a pattern that matches no setting of either configuration.
ResumeChanges resume_changes(const std::string& before, const Config& now, const std::vector<std::string>& allowed);

/// Returns the error message for refused changes: which they are, and what to do.
std::string refusal(const std::vector<Change>& refused);

}  // namespace tessera
