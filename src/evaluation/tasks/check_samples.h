#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/evaluation/tasks/pass.h"

namespace tessera {

/// Looks at a few samples of a task's data, spread over the first max_samples (-1: all) or from the beginning of a stream, and
/// at more while none has what is required. Ignores samples that cannot be read. Calls `look` with each sample that has it and
/// passes on its exceptions. Throws TaskMisfit if none has it. `setting` names the data in the task ("source").
void check_samples(const Source& source, const std::string& setting, std::int64_t max_samples, const Required& required,
                   const std::function<void(const Sample&)>& look = {});

/// The same for both data sets of a task that trains on one and tests on the other. `task` is its name.
void check_train_and_test(const std::string& task, const TrainTestData& data, const EvaluationContext& context,
                          const Required& required);

}  // namespace tessera
