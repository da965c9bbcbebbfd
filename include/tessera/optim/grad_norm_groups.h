#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/optim/clip_grad_norm.h>
#include <tessera/optim/optimizer.h>

namespace tessera {

/// To which part of the model each parameter of an optimizer belongs.
struct GradNormGroups {
  std::vector<std::string> names;  // those of image, text and objective (logit scale included) that are trained
  std::vector<std::size_t> of;     // index into names
};
GradNormGroups grad_norm_groups(const Optimizer& optimizer);

/// clip_grad_norm over the gradients that the optimizer's next step takes (those of frozen parameters count nowhere),
/// with a norm for each tower (0 where no parameter has one).
GradientNorms clip_gradients(const Optimizer& optimizer, const GradNormGroups& groups, std::optional<double> max_norm,
                             ClipMode mode = ClipMode::global);

}  // namespace tessera
