#pragma once

#include <tessera/evaluation/metrics/sparsity_meter.h>
#include <tessera/report/task_result.h>

namespace tessera {

/// Adds active tokens per image and text, means, and the tokens that none of the images and none of the texts have
/// active; nothing where nothing was counted.
void add_sparsity(TaskResult& result, const metrics::SparsityMeter& images, const metrics::SparsityMeter& texts);

}  // namespace tessera
