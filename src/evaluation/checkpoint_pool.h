#pragma once

#include <memory>

#include "src/models/text_conditioned_pool.h"
#include <tessera/evaluation/inference.h>

namespace tessera {

/// Returns the text-conditioned pool of the objective that a model file was trained with, on the model's device; null if the file has none.
/// The pool's weights are `objective.pool.*` or, for a weighted sum, `objective.objectives.LABEL.pool.*`, where LABEL is the first label in
/// alphabetical order that has a pool. Its settings come from the configuration in the file, or are the defaults if the file has no
/// configuration. The objective itself is not built, so the file need not contain its teacher. Throws UserError that names the file if the
/// weights do not form a pool.
std::shared_ptr<TextConditionedPool> checkpoint_pool(const InferenceModel& loaded);

}  // namespace tessera
