#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/optim/clip_grad_norm.h>
#include <tessera/optim/optimizer.h>

namespace tessera {

/// The part of the model that each of an optimizer's parameters belongs to.
struct GradNormGroups {
  std::vector<std::string> names;  // image, text and objective (with the logit scale), where trained
  std::vector<std::size_t> of;     // index into names, by parameter
};
GradNormGroups grad_norm_groups(const Optimizer& optimizer);

/// Calls clip_grad_norm on the gradients that the optimizer's next step uses (those of frozen parameters are left out),
/// with a norm for each group (0 where no parameter has a gradient).
GradientNorms clip_gradients(const Optimizer& optimizer, const GradNormGroups& groups, std::optional<double> max_norm,
                             ClipMode mode = ClipMode::global);

}  // namespace tessera
