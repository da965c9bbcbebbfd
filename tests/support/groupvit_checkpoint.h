#pragma once

#include <map>
#include <string>

#include <ATen/ATen.h>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// Returns a model's tensors with the names and shapes that the GroupViT authors' code uses.
inline std::map<std::string, at::Tensor> as_groupvit_wrote(const DualEncoder& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : model.state_dict()) {
    const auto renamed = [&](const std::string& ours, const std::string& theirs) {
      return theirs + name.substr(ours.size());
    };
    const bool convolution = tensor.dim() == 2;
    if (name.starts_with("visual.readout.head."))
      out[renamed("visual.readout.head.", "img_projector.")] = convolution ? tensor.unsqueeze(2) : tensor;
    else if (name.starts_with("visual."))
      out[renamed("visual.", "img_encoder.")] = tensor;
    else if (name.starts_with("head."))
      out[renamed("head.", "text_projector.")] = convolution ? tensor.unsqueeze(2) : tensor;
    else
      out["text_encoder." + name] = tensor;
  }
  out["logit_scale"] = at::full({}, 3.0);
  out["multi_label_logit_scale"] = at::full({}, 2.0);
  return out;
}

}  // namespace tessera
