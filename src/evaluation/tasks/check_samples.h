#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/evaluation/tasks/pass.h"

namespace tessera {

/// Looks at a few samples of a task's data, spread over the first max_samples (-1: all) or at the beginning of a stream;
/// at more while none has what is required. `setting` names the data in the task ("source"). A sample that cannot be
/// read tells nothing. Throws TaskMisfit when none has it, and what `look`, called with each that has, throws.
void check_samples(const Source& source, const std::string& setting, std::int64_t max_samples, const Required& required,
                   const std::function<void(const Sample&)>& look = {});

/// The same of both data sets of a task that learns from one and is measured on the other. `task` is its name.
void check_train_and_test(const std::string& task, const TrainTestData& data, const EvaluationContext& context,
                          const Required& required);

}  // namespace tessera
