#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/optim/clip_grad_norm.h>
#include <tessera/optim/optimizer.h>

namespace tessera {

/// Assigns each parameter of an optimizer to a part of the model.
struct GradNormGroups {
  std::vector<std::string> names;  // the trained parts among "image", "text" and "objective" (which includes the logit scale)
  std::vector<std::size_t> of;     // for each parameter, the index of its part in names
};
GradNormGroups grad_norm_groups(const Optimizer& optimizer);

/// Calls clip_grad_norm on the gradients that the optimizer's next step uses, which are those of parameters that are not frozen. Also
/// computes a norm for each group (0 if no parameter of the group has a gradient).
GradientNorms clip_gradients(const Optimizer& optimizer, const GradNormGroups& groups, std::optional<double> max_norm,
                             ClipMode mode = ClipMode::global);

}  // namespace tessera
