#include <ATen/ATen.h>

#include "src/evaluation/metrics/token_localization.h"

namespace tessera::metrics {

TokenLocalization token_localization(const at::Tensor& activations, const config::Size& grid) {
  TORCH_CHECK(activations.dim() == 3 && activations.is_floating_point() &&
                  activations.size(1) == grid.height * grid.width && activations.size(2) > 0,
              "token_localization: activations must be floating [B, P, Q] with P = ", grid.height, " * ", grid.width,
              " and Q at least 1, got ", activations.scalar_type(), " ", activations.sizes());
  const at::Tensor flat = activations.mean(2);  // [B, P]
  const at::Tensor low = flat.amin(1, /*keepdim=*/true), range = flat.amax(1, /*keepdim=*/true) - low;
  // A constant map is divided by 1, so that neither its values nor their gradients are 0 / 0.
  const at::Tensor normalized = (flat - low) / range.masked_fill(range == 0, 1);
  const auto picture = [&](const at::Tensor& rows) { return rows.unflatten(1, {grid.height, grid.width}); };
  return {picture(flat), picture(normalized)};
}

}  // namespace tessera::metrics
