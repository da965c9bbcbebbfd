#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/self_attention.h"
#include "tools/bench/tune.h"
#include <tessera/base/error.h>

namespace tessera::bench {

std::vector<TuningCase> self_attention_tuning_cases(const at::Device& device) {
  constexpr std::int64_t kBatch = 256;
  struct Shape {
    std::int64_t tokens;
    bool causal = false, packed = false;
    std::int64_t heads = 12, head_width = 64;
    std::int64_t width() const { return heads * head_width; }
  };
  std::vector<TuningCase> out;
  for (const Shape& shape :
       {Shape{50}, {77, true}, {77, false, true}, {77, true, true}, {196}, {197}, {256}, {257}, {256, false, false, 16, 80}}) {
    AttentionMask mask;
    mask.causal = shape.causal;
    if (shape.packed) {
      const at::Tensor lengths = at::arange(kBatch).remainder(18) + 8;  // about as long as COCO's captions
      mask.packed = packed_rows((at::arange(shape.tokens).unsqueeze(0) < lengths.unsqueeze(1)).to(device), lengths);
    }
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kBFloat16);
    const std::int64_t rows = shape.packed ? mask.packed.places.size(0) : kBatch * shape.tokens;
    at::Tensor qkv = at::randn({rows, 3 * shape.width()}, options), gradient = at::randn({rows, shape.width()}, options);
    if (!shape.packed) {
      qkv = qkv.unflatten(0, {kBatch, shape.tokens});
      gradient = gradient.unflatten(0, {kBatch, shape.tokens});
    }
    const auto both_passes = [mask, heads = shape.heads](const at::Tensor& in, const at::Tensor& grad_output) -> Tensors {
      const at::Tensor leaf = in.detach().requires_grad_(), result = self_attention(leaf, heads, mask);
      return {result.detach(), torch::autograd::grad({result}, {leaf}, {grad_output})[0]};
    };
    const auto reference = [=] {
      const at::Tensor exact = qkv.to(at::kDouble);
      const ForcedConfiguration composed(attention_tuning_key(attention_problem(exact, shape.heads, mask).value()), "composed");
      return both_passes(exact, gradient.to(at::kDouble));
    };
    const SelfAttentionProblem problem = attention_problem(qkv, shape.heads, mask).value();
    std::vector<std::string> configurations = attention_configurations(problem);
    std::erase(configurations, "composed");  // never the fastest
    out.push_back({attention_tuning_key(problem),
                   concat("both passes, B=", kBatch, " N=", shape.tokens, " H=", shape.heads, " d=", shape.head_width,
                          shape.causal ? " causal" : "", shape.packed ? " packed" : ""),
                   std::move(configurations), [=] { return both_passes(qkv, gradient); }, reference, 1e-2, "cudnn"});
  }
  return out;
}

}  // namespace tessera::bench
