#pragma once

#include "src/ops/tuning.h"

namespace tessera {

/// What the choice of the GPU kernel's configuration in the forward pass depends on: the number of positions, in groups of 8.
TuningKey token_max_projection_tuning_key(at::ScalarType type, std::int64_t positions);

}  // namespace tessera
