#pragma once

#include <memory>

#include <tessera/evaluation/inference.h>
#include <tessera/models/text_conditioned_pool.h>

namespace tessera {

/// Returns the text-conditioned pool of the objective that a model file was trained with, on the model's device, or null if the
/// file holds none. The weights are `objective.pool.*`, or `objective.objectives.LABEL.pool.*` of a weighted sum (the first
/// label in alphabetical order that has a pool). The settings come from the configuration in the file, or are the defaults if
/// it has none. The objective itself is not built, so the file need not hold its teacher. Throws UserError naming the file if
/// the weights do not make a pool.
std::shared_ptr<TextConditionedPool> checkpoint_pool(const InferenceModel& loaded);

}  // namespace tessera
