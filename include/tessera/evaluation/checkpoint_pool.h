#pragma once

#include <memory>

#include <tessera/evaluation/inference.h>
#include <tessera/models/text_conditioned_pool.h>

namespace tessera {

/// The text-conditioned pool of the objective that a model file was trained with (`objective.pool.*`, or
/// `objective.objectives.LABEL.pool.*` of a weighted sum, the first of several by name), on the model's device; null where the
/// file holds none. Its settings are those of the configuration in the file, or the defaults where the file has none. The
/// objective itself is not built: the file need not hold its teacher. Throws UserError naming the file for weights that do not
/// make a pool.
std::shared_ptr<TextConditionedPool> checkpoint_pool(const InferenceModel& loaded);

}  // namespace tessera
