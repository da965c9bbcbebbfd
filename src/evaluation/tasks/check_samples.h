#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/evaluation/tasks/pass.h"

namespace tessera {

/// Checks that a task's data contain what the task requires. Reads a few samples: from a stream, the first samples; from any other source,
/// samples spread over the first max_samples (-1: all). If none of these samples has what is required, reads more. Ignores samples that
/// cannot be read. Calls `look` with each sample that has what is required; `look` may throw. Throws TaskMisfit if no sample has what is
/// required. `setting` is the name of the task's setting that selects the data ("source").
void check_samples(const Source& source, const std::string& setting, std::int64_t max_samples, const Required& required,
                   const std::function<void(const Sample&)>& look = {});

/// Returns false if check_samples() would throw because no sample has what is required. Calls `look` like check_samples().
bool some_sample_has(const Source& source, std::int64_t max_samples, const Required& required,
                     const std::function<void(const Sample&)>& look = {});

/// Checks both data sets of a task that trains on one and tests on the other. `task` is the task's name.
void check_train_and_test(const std::string& task, const TrainTestData& data, const EvaluationContext& context,
                          const Required& required);

}  // namespace tessera
