#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// Returns the settings of GroupViT's released checkpoints (Xu et al. 2022): `groupvit` and a causal text transformer
/// of 12 layers, 256 wide, with two-layer heads to 256.
ModelSettings groupvit_model();

/// Returns the tensors of a checkpoint of the authors' code under our names. The checkpoint has `img_encoder.*`,
/// `img_projector.*`, `text_encoder.*`, `text_projector.*` and `logit_scale`, with or without the prefix `module.` or
/// `model.`; maps that are 1x1 convolutions there become linear ones. Tensors that only training needs are left out.
/// Throws UserError naming `origin` if there is no image encoder in it, or an unknown tensor.
std::map<std::string, at::Tensor> from_groupvit(const std::map<std::string, at::Tensor>& tensors,
                                                const std::string& origin);

}  // namespace tessera
