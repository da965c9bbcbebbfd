#pragma once

#include "src/evaluation/metrics/sparse.h"
#include <tessera/report/task_result.h>

namespace tessera {

/// Adds the mean number of active tokens per image and per text, and the numbers of tokens that are not active in any image or in
/// any text. Adds nothing for a meter without rows.
void add_sparsity(TaskResult& result, const metrics::SparsityMeter& images, const metrics::SparsityMeter& texts);

}  // namespace tessera
