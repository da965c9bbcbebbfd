#include <cmath>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/base/avoided_flops.h"
#include "src/base/recomputing.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/slot_attention.h>

namespace tessera {
namespace {

struct Sizes {
  std::int64_t batch, tokens, width;            // B, N, d
  std::int64_t projections, group, key, value;  // K, g, D, E
  bool shared;                                  // whether the keys are also the values
  std::int64_t slots() const { return projections * group; }

  // folded() and projected() return the number of multiply-adds for one sample in the folded form and in the projected form. Once per
  // batch, the folded form also multiplies each query with its projection. folded() does not count this product, because the choice of the
  // form must not depend on how a batch is split.
  std::int64_t folded() const { return slots() * width * (2 * tokens + value); }
  std::int64_t projected() const {
    return tokens * (projections * width * (shared ? key : key + value) + slots() * (key + value));
  }
  std::int64_t saved_by_folding() const { return batch * (projected() - folded()) - slots() * width * key; }
};

Sizes checked_sizes(const SlotAttentionInputs& in) {
  TORCH_CHECK(in.tokens.dim() == 3 && in.tokens.size(1) > 0 && in.tokens.is_floating_point(),
              "slot_attention: tokens must be floating [B, N, d] with N at least 1, got ", in.tokens.scalar_type(), " ",
              in.tokens.sizes());
  TORCH_CHECK(in.queries.dim() == 3 && in.queries.numel() > 0, "slot_attention: queries must be [K, g, D], got ",
              in.queries.sizes());
  const std::int64_t projections = in.queries.size(0), key = in.queries.size(2), width = in.tokens.size(2);
  TORCH_CHECK(in.key_weight.sizes() == at::IntArrayRef({projections, key, width}),
              "slot_attention: key_weight must be [K, D, d] = [", projections, ", ", key, ", ", width, "], got ",
              in.key_weight.sizes());
  TORCH_CHECK(in.value_weight.dim() == 3 && in.value_weight.size(0) == projections && in.value_weight.size(2) == width,
              "slot_attention: value_weight must be [K, E, d] = [", projections, ", E, ", width, "], got ",
              in.value_weight.sizes());
  const std::int64_t value = in.value_weight.size(1);
  TORCH_CHECK(!in.value_bias.defined() || in.value_bias.sizes() == at::IntArrayRef({projections, value}),
              "slot_attention: value_bias must be [K, E] = [", projections, ", ", value, "], got ",
              in.value_bias.sizes());
  TORCH_CHECK(!in.mask.defined() || (in.mask.scalar_type() == at::kBool && in.mask.dim() == 2 &&
                                     in.mask.size(0) == in.tokens.size(0) && in.mask.size(1) == in.tokens.size(1)),
              "slot_attention: mask must be bool [B, N] = [", in.tokens.size(0), ", ", in.tokens.size(1), "], got ",
              in.mask.scalar_type(), " ", in.mask.sizes());
  return {in.tokens.size(0),
          in.tokens.size(1),
          width,
          projections,
          in.queries.size(1),
          key,
          value,
          in.key_weight.is_same(in.value_weight)};
}

// Returns the type in which products are computed: autocast's type if autocast is on, otherwise the type of the tokens.
// float64 stays float64, because autocast does not cast it.
at::ScalarType product_type(const at::Tensor& tokens) {
  const at::DeviceType device = tokens.device().type();
  return tokens.scalar_type() != at::kDouble && at::autocast::is_autocast_enabled(device)
             ? at::autocast::get_autocast_dtype(device)
             : tokens.scalar_type();
}

// Reorders x from [B, K g, c] to [K, B g, c], so that one batched product applies each projection to its slots.
at::Tensor by_projection(const at::Tensor& x, std::int64_t projections) {
  return x.unflatten(1, {projections, -1}).transpose(0, 1).flatten(1, 2);
}

// The inverse of by_projection().
at::Tensor by_sample(const at::Tensor& x, std::int64_t batch) {
  return x.unflatten(1, {batch, -1}).transpose(0, 1).flatten(1, 2);
}

// Projects each slot's weighted sum of tokens: weights [B, L, N], tokens [B, N, d], projection [K, E, d] -> [B, L, E].
// The backward pass recomputes the sums [B, L, d], because keeping them would take much more memory than keeping the
// weights.
class ProjectedSums : public torch::autograd::Function<ProjectedSums> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& weights, const at::Tensor& tokens,
                            const at::Tensor& projection) {
    ctx->save_for_backward({weights, tokens, projection});
    const at::Tensor sums = by_projection(at::bmm(weights, tokens), projection.size(0));  // [K, B g, d]
    return by_sample(at::bmm(sums, projection.mT()), tokens.size(0));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &weights = saved[0], &tokens = saved[1], &projection = saved[2];
    const bool wants_weights = ctx->needs_input_grad(0), wants_tokens = ctx->needs_input_grad(1);
    const at::Tensor gradient = by_projection(gradients[0], projection.size(0));  // [K, B g, E]
    torch::autograd::variable_list out(3);
    if (ctx->needs_input_grad(2)) {
      at::Tensor sums;
      {
        const Recomputing again;
        sums = at::bmm(weights, tokens);
      }
      out[2] = at::bmm(gradient.mT(), by_projection(sums, projection.size(0)));
    }
    if (!wants_weights && !wants_tokens) return out;
    const at::Tensor of_sums = by_sample(at::bmm(gradient, projection), tokens.size(0));  // [B, L, d]
    if (wants_weights) out[0] = at::bmm(of_sums, tokens.mT());
    if (wants_tokens) out[1] = at::bmm(weights.mT(), of_sums);
    return out;
  }
};

// Returns the softmax of scores [B, L, N] over the real tokens, in float32 or better.
at::Tensor compute_attention(const at::Tensor& scores, const at::Tensor& mask) {
  const at::Tensor wide = to_compute(scores).contiguous();
  if (!mask.defined()) return wide.softmax(-1);
  const at::Tensor padding = mask.logical_not().unsqueeze(1);  // [B, 1, N]
  // If a row is all padding, the softmax is uniform over the padding. The second masked_fill sets these weights to 0.
  return wide.masked_fill(padding, lowest(wide.scalar_type())).softmax(-1).masked_fill(padding, 0);
}

// Returns the bias of every slot, [1, L, E]: each of the K rows of value_bias [K, E] is repeated for the L / K slots of its group.
at::Tensor bias_of_slots(const at::Tensor& bias, const Sizes& s) {
  return bias.unsqueeze(1).expand({-1, s.group, -1}).reshape({1, s.slots(), s.value});
}

SlotAttentionOutputs folded(const SlotAttentionInputs& in, const at::Tensor& tokens, const at::Tensor& queries,
                            const Sizes& s) {
  const at::ScalarType type = tokens.scalar_type();
  const at::Tensor directions = at::bmm(queries, to_compute(in.key_weight)).flatten(0, 1).to(type);  // [L, d]
  SlotAttentionOutputs out;
  out.attention = compute_attention(at::matmul(tokens, directions.t()).mT(), in.mask);
  out.heads = ProjectedSums::apply(out.attention.to(type), tokens, in.value_weight.to(type));
  if (!in.value_bias.defined()) return out;
  at::Tensor bias = bias_of_slots(in.value_bias.to(type), s);
  if (in.mask.defined()) bias = bias * in.mask.any(1).view({-1, 1, 1});
  out.heads = out.heads + bias;
  return out;
}

SlotAttentionOutputs projected(const SlotAttentionInputs& in, const at::Tensor& tokens, const at::Tensor& queries,
                               const Sizes& s) {
  const at::ScalarType type = tokens.scalar_type();
  const auto project = [&](const at::Tensor& weight, const at::Tensor& bias) {
    const std::optional<at::Tensor> flat_bias = bias.defined() ? std::optional(bias.to(type).flatten()) : std::nullopt;
    return at::linear(tokens, weight.to(type).flatten(0, 1), flat_bias)
        .unflatten(2, {s.projections, -1})
        .transpose(1, 2);  // [B, K, N, D or E]
  };
  const at::Tensor values = project(in.value_weight, in.value_bias),
                   keys = s.shared ? values : project(in.key_weight, {});
  SlotAttentionOutputs out;
  out.attention = compute_attention(at::matmul(queries.to(type), keys.mT()).flatten(1, 2), in.mask);
  out.heads = at::matmul(out.attention.to(type).unflatten(1, {s.projections, s.group}), values).flatten(1, 2);
  return out;
}

}  // namespace

SlotAttentionOutputs slot_attention(const SlotAttentionInputs& in) {
  const Sizes s = checked_sizes(in);
  at::Tensor tokens = in.tokens.to(product_type(in.tokens));
  const NoAutocast no_autocast;
  if (in.mask.defined()) tokens = tokens.masked_fill(in.mask.logical_not().unsqueeze(-1), 0);
  const at::Tensor queries = to_compute(in.queries) / std::sqrt(static_cast<double>(s.key));
  if (s.projected() <= s.folded()) return projected(in, tokens, queries, s);
  AvoidedFlops::add(2 * s.saved_by_folding());
  return folded(in, tokens, queries, s);
}

}  // namespace tessera
