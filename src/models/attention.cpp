#include <limits>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "src/models/attention.h"

namespace tessera {
namespace {

at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(1, 2);  // [B, heads, N, w / heads]
}

void check_mask(const at::Tensor& mask, std::int64_t keys) {
  TORCH_CHECK(mask.dim() == 2 && mask.size(1) == keys && mask.scalar_type() == at::kBool,
              "attention: the mask must be bool [B, ", keys, "], got ", mask.scalar_type(), " ", mask.sizes());
}

// Disables cuDNN's attention while an object of this class exists. The backward pass of cuDNN's attention with a mask gives NaN for lengths
// that are 64 modulo 128 (PyTorch 2.11 on Hopper; pytorch/pytorch issue 196678).
class WithoutCudnnAttention {
 public:
  WithoutCudnnAttention() : before_(at::globalContext().userEnabledCuDNNSDP()) {
    at::globalContext().setSDPUseCuDNN(false);
  }
  ~WithoutCudnnAttention() { at::globalContext().setSDPUseCuDNN(before_); }
  WithoutCudnnAttention(const WithoutCudnnAttention&) = delete;
  WithoutCudnnAttention& operator=(const WithoutCudnnAttention&) = delete;

 private:
  bool before_;
};

}  // namespace

AttentionMask attention_mask(const at::Tensor& key_mask, std::int64_t keys) {
  AttentionMask out;
  if (!key_mask.defined()) return out;
  check_mask(key_mask, keys);
  const at::Tensor real = key_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, K]
  out.has_key = real.any(-1, /*keepdim=*/true);
  // A softmax over no keys is NaN. So in a row without any real key, the queries attend to all keys, and attend() then
  // sets their output to 0.
  out.allowed = real | out.has_key.logical_not();
  return out;
}

AttentionMask self_attention_mask(const at::Tensor& mask, std::int64_t tokens) {
  AttentionMask out = attention_mask(mask, tokens);
  out.has_key.reset();
  return out;
}

AttentionMask causal_attention_mask(const at::Tensor& mask, std::int64_t tokens) {
  AttentionMask out;
  out.causal = true;
  if (!mask.defined()) return out;
  check_mask(mask, tokens);
  TORCH_CHECK(!mask.is_cpu() || !(mask.slice(1, 1) & ~mask.slice(1, 0, -1)).any().item<bool>(),
              "causal attention: a real token comes after padding; padding must be on the right");
  return out;
}

AttentionMask placed_attention_mask(const at::Tensor& mask, std::int64_t tokens, const at::Tensor& bias, std::int64_t window, bool causal,
                                    const at::Device& device) {
  AttentionMask out = self_attention_mask(mask, tokens);
  if (window > 0 || causal) {
    const at::Tensor place = at::arange(tokens, at::TensorOptions(device).dtype(at::kLong));
    const at::Tensor away = place.unsqueeze(1) - place;  // [N, N]: how many places the key is before the query
    at::Tensor near = window > 0 ? away.abs().le(window) : at::ones_like(away, at::kBool);
    if (causal) near = near & away.ge(0);
    // Padding attends at least to itself, because a softmax over no keys is NaN, and NaN would reach the gradients of real tokens.
    out.allowed = out.allowed.defined() ? (near & out.allowed) | away.eq(0) : near.view({1, 1, tokens, tokens});
  }
  if (bias.defined())
    out.allowed = out.allowed.defined() ? bias.masked_fill(out.allowed.logical_not(), -std::numeric_limits<double>::infinity()) : bias;
  return out;
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                  const AttentionMask& mask) {
  if (mask.packed.defined() && mask.allowed.defined()) {
    AttentionMask padded = mask;
    padded.packed = {};
    const auto all = [&](const at::Tensor& x) { return unpack(x, mask.packed); };
    return pack(attend(all(query), all(key), all(value), heads, padded), mask.packed);
  }
  if (mask.packed.defined()) return attend_in_rows(query, key, value, heads, mask.packed, mask.causal);
  std::optional<at::Tensor> allowed;
  std::optional<WithoutCudnnAttention> without_cudnn;
  if (mask.allowed.defined()) {
    allowed = mask.allowed.is_floating_point() ? mask.allowed.to(query.scalar_type()) : mask.allowed;
    without_cudnn.emplace();
  }
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
