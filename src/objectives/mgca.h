#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Returns a balanced assignment of B samples to K prototypes (Sinkhorn-Knopp, as in SwAV). Maps scores [B, K] to codes [B, K],
/// whose rows sum to 1, without gradient. Computes in log space, so that a small epsilon does not overflow. Rows that are not
/// `present` [B] are ignored and their codes are 0; an undefined `present` means that all rows are present.
at::Tensor sinkhorn_codes(const at::Tensor& scores, double epsilon, std::int64_t iterations,
                          const at::Tensor& present = {});

}  // namespace tessera
