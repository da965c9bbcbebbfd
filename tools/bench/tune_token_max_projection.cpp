#include <ATen/ATen.h>

#include "kernels/token_max_projection/token_max_projection.h"
#include "src/ops/token_max_projection.h"
#include "tools/bench/tune.h"
#include <tessera/base/error.h>
#include <tessera/ops/token_max_projection.h>

namespace tessera::bench {

std::vector<TuningCase> token_max_projection_tuning_cases(const at::Device& device) {
  constexpr std::int64_t kBatch = 64, kVocabulary = 30522, kWidth = 512;
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kBFloat16);
  std::vector<TuningCase> out;
  for (const std::int64_t positions : {49, 77, 196, 256, 576}) {
    const at::Tensor tokens = at::randn({kBatch, positions, kWidth}, options), table = 0.02 * at::randn({kVocabulary, kWidth}, options),
                     bias = at::zeros({kVocabulary}, options.dtype(at::kFloat));
    const auto encode = [=](at::ScalarType type) {
      return Tensors{token_max_projection(tokens.to(type), {}, table.to(type), bias.to(type == at::kDouble ? type : at::kFloat)).encoding};
    };
    out.push_back({token_max_projection_tuning_key(at::kBFloat16, positions),
                   concat("B=", kBatch, " N=", positions, " V=", kVocabulary, " w=", kWidth),
                   kernels::token_max_projection_configurations(),
                   [=] { return encode(at::kBFloat16); },
                   [=] { return encode(at::kDouble); },
                   1e-2});
  }
  return out;
}

}  // namespace tessera::bench
