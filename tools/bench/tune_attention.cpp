#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/self_attention.h"
#include "tools/bench/tune.h"
#include <tessera/base/error.h>

namespace tessera::bench {

std::vector<TuningCase> self_attention_tuning_cases(const at::Device& device) {
  constexpr std::int64_t kBatch = 256, kHeads = 12, kWidth = 768;
  struct Shape {
    std::int64_t tokens;
    bool causal = false, packed = false;
  };
  std::vector<TuningCase> out;
  for (const Shape& shape : {Shape{50}, {77, true}, {77, false, true}, {77, true, true}, {196}, {197}, {256}, {257}}) {
    AttentionMask mask;
    mask.causal = shape.causal;
    if (shape.packed) {
      const at::Tensor lengths = at::arange(kBatch).remainder(18) + 8;  // about as long as COCO's captions
      mask.packed = packed_rows((at::arange(shape.tokens).unsqueeze(0) < lengths.unsqueeze(1)).to(device), lengths);
    }
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kBFloat16);
    const std::int64_t rows = shape.packed ? mask.packed.places.size(0) : kBatch * shape.tokens;
    at::Tensor qkv = at::randn({rows, 3 * kWidth}, options), gradient = at::randn({rows, kWidth}, options);
    if (!shape.packed) {
      qkv = qkv.unflatten(0, {kBatch, shape.tokens});
      gradient = gradient.unflatten(0, {kBatch, shape.tokens});
    }
    const auto both_passes = [mask](const at::Tensor& in, const at::Tensor& grad_output) -> Tensors {
      const at::Tensor leaf = in.detach().requires_grad_(), result = self_attention(leaf, kHeads, mask);
      return {result.detach(), torch::autograd::grad({result}, {leaf}, {grad_output})[0]};
    };
    const auto reference = [=] {
      const at::Tensor exact = qkv.to(at::kDouble);
      const ForcedConfiguration composed(attention_tuning_key(attention_problem(exact, kHeads, mask).value()), "composed");
      return both_passes(exact, gradient.to(at::kDouble));
    };
    const SelfAttentionProblem problem = attention_problem(qkv, kHeads, mask).value();
    std::vector<std::string> configurations = attention_configurations(problem);
    std::erase(configurations, "composed");  // never the fastest
    out.push_back({attention_tuning_key(problem),
                   concat("both passes, B=", kBatch, " N=", shape.tokens, " H=", kHeads, " d=", kWidth / kHeads,
                          shape.causal ? " causal" : "", shape.packed ? " packed" : ""),
                   std::move(configurations), [=] { return both_passes(qkv, gradient); }, reference, 1e-2, "cudnn"});
  }
  return out;
}

}  // namespace tessera::bench
