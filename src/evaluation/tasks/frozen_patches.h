#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/base/error.h>
#include <tessera/features.h>

namespace tessera {

/// What probes of frozen patches look at.
inline const ViewNeeds kPatchNeeds = {.encoder_tokens = true};

/// The encoder's tokens, [B, rows * columns, D]. Throws UserError where they are no grid; `task` is its registered name.
inline const at::Tensor& patches_of(const TowerFeatures& features, const std::string& task) {
  if (!features.encoder_tokens.defined() || features.mask.defined())
    user_error(task, ": this model's image encoder gives no grid of patches");
  return features.encoder_tokens;
}

}  // namespace tessera
