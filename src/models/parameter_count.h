#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// The number of parameters that a model can learn. Shared parameters count once, and buffers do not count.
struct ParameterCount {
  std::int64_t image = 0;
  std::int64_t text = 0;
  std::int64_t objective = 0;           // the objective's own parameters, such as the logit scale and heads
  std::int64_t adapters = 0;            // how many of the parameters counted in `image` and `text` belong to adapters
  std::optional<std::int64_t> trained;  // number of trained parameters; unset in programs that do not train

  std::int64_t model() const { return image + text; }
};

/// Counts the towers' parameters. If `objective` is given, also counts its parameters, without those that it shares with the towers.
ParameterCount count_parameters(const DualEncoder& model, const torch::nn::Module* objective = nullptr);

/// Returns the count in the form used by all programs and pages: "1,314: image tower 1,024, text tower 290; 1 more of the objective; 291
/// are trained". The part about the objective appears only if the objective has parameters, and the last part only if some parameters are
/// frozen. If there are adapters, "40 in adapters" comes before the last part.
std::string describe(const ParameterCount& count);

}  // namespace tessera
