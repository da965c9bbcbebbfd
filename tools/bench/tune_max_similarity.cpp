#include <memory>

#include <ATen/ATen.h>

#include "kernels/max_similarity/max_similarity.h"
#include "src/ops/dispatch.h"
#include "src/ops/max_similarity.h"
#include "src/ops/operators.h"
#include "tools/bench/tune.h"
#include <tessera/base/error.h>

namespace tessera::bench {

std::vector<TuningCase> max_similarity_tuning_cases(const at::Device& device) {
  constexpr std::int64_t kBatch = 128, kWidth = 256;
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
  using kernels::Pass, at::Tensor;
  using Compared = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  register_operators();
  const auto compare = operation<Compared(const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::optional<std::int64_t>)>(
      "tessera::_max_similarity");
  const auto differentiate =
      operation<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                           const Tensor&, const Tensor&)>("tessera::_max_similarity_backward");
  std::vector<TuningCase> out;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (const std::int64_t count : {55, 76})
      for (const std::int64_t patch_count : {196, 256}) {
        const at::Tensor patches = at::randn({kBatch, patch_count, kWidth}, options).to(type),
                         tokens = at::randn({kBatch, count, kWidth}, options).to(type),
                         patch_keep = at::ones({kBatch, patch_count}, options.dtype(at::kBool)),
                         token_keep = at::ones({kBatch, count}, options.dtype(at::kBool));
        const auto forward = [=](at::ScalarType as) { return compare.call(patches.to(as), tokens.to(as), patch_keep, token_keep, {}); };
        // The backward pass of the same maxima in every type, because float64 would choose others where two products are almost equal.
        const auto places = std::make_shared<std::optional<Compared>>();
        const at::Tensor gradient = at::randn({kBatch, kBatch}, options);
        const auto backward = [=](at::ScalarType as) {
          if (!*places) *places = forward(type);
          const at::Tensor of_results = gradient.to(as == at::kDouble ? as : at::kFloat);
          const auto [of_patches, of_tokens] = differentiate.call(of_results, of_results, patches.to(as), tokens.to(as), patch_keep,
                                                                  token_keep, std::get<2>(**places), std::get<3>(**places));
          return Tensors{of_patches, of_tokens};
        };
        const auto add = [&](Pass pass, auto run) {
          out.push_back({max_similarity_tuning_key(pass, type, patch_count, count),
                         concat("B=", kBatch, " P=", patch_count, " L=", count, " D=", kWidth),
                         kernels::max_similarity_configurations(pass), [=] { return run(type); }, [=] { return run(at::kDouble); },
                         type == at::kBFloat16 ? 1e-2 : 1e-4});
        };
        add(Pass::kForward, [=](at::ScalarType as) {
          const Compared all = forward(as);
          return Tensors{std::get<0>(all), std::get<1>(all)};
        });
        add(Pass::kBackward, backward);
      }
  return out;
}

}  // namespace tessera::bench
