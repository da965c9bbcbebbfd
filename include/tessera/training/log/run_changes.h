#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/config/resume_rules.h>

namespace tessera {

/// Adds the settings that change from this step on to RUN/changes.jsonl, one JSON object per line. Entries of this or later steps,
/// which belong to a discarded part of the run, are dropped. Throws UserError.
void note_changes(const std::string& run, std::int64_t step, const std::vector<Change>& changes);

/// Returns the recorded changes for the run's page, in order: {"From step 3", "optimizer.lr: 0.1 before, 0.2 now"}.
std::vector<std::pair<std::string, std::string>> noted_changes(const std::string& run);

}  // namespace tessera
