#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/pass.h"
#include <tessera/base/error.h>
#include <tessera/features.h>

namespace tessera {

/// Returns a pass over the samples of `source`. For each image, the pass computes the encoder's patch tokens.
inline Pass pass_over_patches(const Embedder& embedder, const EvaluationContext& context,
                              const std::shared_ptr<const Source>& source, std::int64_t max_samples, const Required& required) {
  return {.embedder = embedder,
          .context = context,
          .source = source,
          .max_samples = max_samples,
          .required = required,
          .needs = {.encoder_tokens = true}};
}

/// Returns the encoder's patch tokens, [B, rows * columns, D]. Throws UserError if they do not form a grid. `task` is the
/// task's registered name, for the message.
inline const at::Tensor& patches_of(const TowerFeatures& features, const std::string& task) {
  if (!features.encoder_tokens.defined() || features.mask.defined())
    user_error(task, ": this model's image encoder outputs no grid of patches");
  return features.encoder_tokens;
}

}  // namespace tessera
