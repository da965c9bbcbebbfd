#include <ATen/ATen.h>

#include <tessera/models/attention.h>

namespace tessera {
namespace {

at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(1, 2);  // [B, heads, N, w / heads]
}

}  // namespace

AttentionMask attention_mask(const at::Tensor& key_mask, bool causal, std::int64_t keys) {
  AttentionMask out;
  if (!key_mask.defined()) {
    out.causal = causal;
    return out;
  }
  TORCH_CHECK(key_mask.dim() == 2 && key_mask.size(1) == keys && key_mask.scalar_type() == at::kBool,
              "attention_mask: the mask must be bool [B, ", keys, "], got ", key_mask.scalar_type(), " ",
              key_mask.sizes());
  at::Tensor allowed = key_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, K]
  if (causal) allowed = allowed & at::ones({keys, keys}, key_mask.options()).tril();
  out.has_key = allowed.any(-1, /*keepdim=*/true);
  // A softmax over nothing is NaN; such queries attend to everything and attend() replaces what they get.
  out.allowed = allowed | out.has_key.logical_not();
  return out;
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                  const AttentionMask& mask) {
  std::optional<at::Tensor> allowed;
  if (mask.allowed.defined()) allowed = mask.allowed.expand({-1, heads, query.size(1), -1});
  at::Tensor out = at::scaled_dot_product_attention(split_heads(query, heads), split_heads(key, heads),
                                                    split_heads(value, heads), allowed, /*dropout_p=*/0.0, mask.causal);
  if (mask.has_key.defined()) out = at::where(mask.has_key, out, at::zeros({}, out.options()));
  return out.transpose(1, 2).flatten(2);
}

at::Tensor zero_padding(const at::Tensor& tokens, const at::Tensor& mask) {
  if (!mask.defined()) return tokens;
  return at::where(mask.unsqueeze(-1), tokens, at::zeros({}, tokens.options()));
}

at::Tensor at_least_float(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? tensor.to(at::kFloat) : tensor;
}

}  // namespace tessera
