#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// How many numbers a model learns; what modules share counts once, buffers not at all.
struct ParameterCount {
  std::int64_t image = 0;
  std::int64_t text = 0;
  std::int64_t objective = 0;           // the objective's own: the logit scale, heads
  std::int64_t adapters = 0;            // of the towers' parameters, those of adapters
  std::optional<std::int64_t> trained;  // of all of them; nothing: nobody trains here

  std::int64_t model() const { return image + text; }
};

/// The towers' parameters, and those of `objective` that are not the towers', if it is given.
ParameterCount count_parameters(const DualEncoder& model, const torch::nn::Module* objective = nullptr);

/// What every program and page says: "1,314: image tower 1,024, text tower 290; 1 more of the objective; 291 are
/// trained". The last two where there are some, and where others stay; before the last, "40 in adapters" where there are any.
std::string describe(const ParameterCount& count);

}  // namespace tessera
