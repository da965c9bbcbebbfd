#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// Returns the settings of GroupViT's released checkpoints (Xu et al. 2022): the image encoder `groupvit`, a causal text transformer of 12
/// layers that is 256 wide, and for each tower a head of two layers whose output is 256 wide.
ModelSettings groupvit_model();

/// Converts the tensors of a checkpoint that the GroupViT authors' code wrote. The returned tensors have our names. The checkpoint has
/// `img_encoder.*`, `img_projector.*`, `text_encoder.*`, `text_projector.*` and `logit_scale`, with or without the prefix `module.` or
/// `model.`; 1x1 convolutions in the checkpoint become linear maps. Tensors that only training needs are left out. Throws UserError naming
/// `origin` if the checkpoint lacks the image encoder or has an unknown tensor.
std::map<std::string, at::Tensor> from_groupvit(const std::map<std::string, at::Tensor>& tensors,
                                                const std::string& origin);

}  // namespace tessera
