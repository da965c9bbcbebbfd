#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/optim/clip_grad_norm.h"
#include <tessera/optim/optimizer.h>

namespace tessera {

/// Assigns each parameter of an optimizer to a part of the model.
struct GradNormGroups {
  std::vector<std::string> names;  // the trained parts among "image", "text" and "objective" (which includes the logit scale)
  std::vector<std::size_t> of;     // for each parameter, the index in `names` of the part that the parameter belongs to
};
GradNormGroups grad_norm_groups(const Optimizer& optimizer);

/// Calls clip_grad_norm on the gradients of all parameters that are not frozen in the optimizer's next step. Also computes a norm for each
/// group (0 if the group has none of these gradients). If the optimizer applies a factor itself, the gradients keep their values, and the
/// result's `factor` is for UpdateInputs.
GradientNorms clip_gradients(const Optimizer& optimizer, const GradNormGroups& groups, std::optional<double> max_norm,
                             ClipMode mode = ClipMode::global);

}  // namespace tessera
