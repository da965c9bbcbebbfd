#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/training/config/resume_rules.h"

namespace tessera {

/// Appends to RUN/changes.jsonl that the run goes on from `step`, unless this is 0, and the settings that change there, one JSON object per
/// line. Drops existing entries of `step` and of later steps, because they belong to a discarded part of the run. Throws UserError.
void note_changes(const std::string& run, std::int64_t step, const std::vector<Change>& changes);

/// Returns the recorded changes for the run's page, in order, as pairs such as {"From step 3", "optimizer.lr: 0.1 before, 0.2
/// now"}.
std::vector<std::pair<std::string, std::string>> noted_changes(const std::string& run);

/// Returns the marks of the run's charts by step: "changed" where settings changed, otherwise "resumed".
std::map<double, std::string> marks_of_changes(const std::string& run);

}  // namespace tessera
