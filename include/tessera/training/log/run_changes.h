#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/config/resume_rules.h>

namespace tessera {

/// Adds to RUN/changes.jsonl, a JSON object a line, what a run has otherwise from this step on; what stands there of this or
/// later steps, of a part that is lost, is dropped. Throws UserError.
void note_changes(const std::string& run, std::int64_t step, const std::vector<Change>& changes);

/// For the run's page: {"From step 3", "optimizer.lr: 0.1 before, 0.2 now"}, in order.
std::vector<std::pair<std::string, std::string>> noted_changes(const std::string& run);

}  // namespace tessera
