#pragma once

#include "src/ops/tuning.h"

namespace tessera {

/// What the choice of the GPU kernel's configuration depends on, besides the pass: the numbers of patches (in groups of 16) and of tokens
/// (in groups of 8).
TuningKey max_similarity_tuning_key(kernels::Pass pass, at::ScalarType type, std::int64_t patches, std::int64_t tokens);

}  // namespace tessera
