#include <ATen/ATen.h>

#include "kernels/max_similarity/max_similarity.h"
#include "src/ops/max_similarity.h"
#include "tools/bench/tune.h"
#include <tessera/base/error.h>
#include <tessera/ops/max_similarity.h>

namespace tessera::bench {

std::vector<TuningCase> max_similarity_tuning_cases(const at::Device& device) {
  constexpr std::int64_t kBatch = 128, kWidth = 256;
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
  std::vector<TuningCase> out;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (const std::int64_t count : {55, 76})
      for (const std::int64_t patch_count : {196, 256}) {
        const at::Tensor patches = at::randn({kBatch, patch_count, kWidth}, options).to(type),
                         tokens = at::randn({kBatch, count, kWidth}, options).to(type),
                         patch_keep = at::ones({kBatch, patch_count}, options.dtype(at::kBool)),
                         token_keep = at::ones({kBatch, count}, options.dtype(at::kBool));
        const auto compare = [=](at::ScalarType as) {
          const auto [i2t, t2i] = max_similarity(patches.to(as), tokens.to(as), patch_keep, token_keep, {});
          return Tensors{i2t, t2i};
        };
        out.push_back({max_similarity_tuning_key(type, patch_count, count),
                       concat("B=", kBatch, " P=", patch_count, " L=", count, " D=", kWidth), kernels::max_similarity_configurations(),
                       [=] { return compare(type); }, [=] { return compare(at::kDouble); }, type == at::kBFloat16 ? 1e-2 : 1e-4});
      }
  return out;
}

}  // namespace tessera::bench
