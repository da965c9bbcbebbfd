#include <cmath>

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/models/attention.h"
#include "src/models/packed_rows.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Takes the entries of x at `places`. No place occurs twice, so the backward pass copies each gradient to its entry, without summing. The
// backward pass is therefore repeatable, and it needs no atomics on a GPU.
class Taken : public torch::autograd::Function<Taken> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& places) {
    ctx->save_for_backward({places});
    ctx->saved_data["count"] = x.size(0);
    return x.index_select(0, places);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients);
};

class Spread : public torch::autograd::Function<Spread> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& places, std::int64_t count) {
    ctx->save_for_backward({places});
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes[0] = count;
    return at::zeros(sizes, x.options()).index_copy_(0, places, x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {Taken::apply(gradients[0], ctx->get_saved_variables()[0]), {}, {}};
  }
};

variable_list Taken::backward(AutogradContext* ctx, const variable_list& gradients) {
  return {Spread::apply(gradients[0], ctx->get_saved_variables()[0], ctx->saved_data["count"].toInt()), {}};
}

// Returns the places of the `count` true elements of `mask`, without waiting for the device. If there are fewer of them, the rest have the
// place behind the last element.
at::Tensor places_of(const at::Tensor& mask, std::int64_t count) {
  const at::Tensor real = mask.flatten();
  const at::Tensor rank = real.to(at::kLong).cumsum(0) - 1;
  const at::Tensor to = at::where(real, rank, at::full({}, count, rank.options()));  // padding goes to an extra last entry
  return at::full({count + 1}, real.numel(), rank.options())
      .scatter_(0, to, at::arange(real.numel(), rank.options()))
      .narrow(0, 0, count);
}

// Whether flash attention takes the queries [T, heads, width]. It needs compute capability 8.0, as do convolutions in bfloat16.
bool takes_flash_attention(const at::Tensor& query) {
  return (query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16) && query.size(-1) <= 256 &&
         at::detail::getCUDAHooks().supportsBFloat16ConvolutionWithCuDNNv8();
}

at::Tensor attend_to_lengths(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const PackedRows& rows, bool causal, double scale) {
  if (takes_flash_attention(query))
    return std::get<0>(at::_flash_attention_forward(query, key, value, rows.offsets, rows.offsets, rows.longest,
                                                    rows.longest, /*dropout_p=*/0.0, causal,
                                                    /*return_debug_mask=*/false, scale));
  constexpr std::int64_t kFull = 0, kCausal = 1;
  const auto one = [](const at::Tensor& x) { return x.unsqueeze(0); };
  const bool gradients = at::GradMode::is_enabled() &&
                         (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return std::get<0>(at::_efficient_attention_forward(one(query), one(key), one(value), /*bias=*/{}, rows.offsets,
                                                      rows.offsets, rows.longest, rows.longest, /*dropout_p=*/0.0,
                                                      causal ? kCausal : kFull, gradients, scale))
      .squeeze(0);
}

// For the attention, pads each row to the length of the longest row. For short texts, this padding costs little
// compared with the other layers, which work on packed rows.
at::Tensor attend_filled_up(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                            const PackedRows& rows, bool causal) {
  const auto filled_up = [&](const at::Tensor& x) {
    const std::int64_t count = rows.offsets.size(0) - 1;
    return Spread::apply(x, rows.filled_places, count * rows.longest).unflatten(0, {count, rows.longest});
  };
  AttentionMask mask;
  mask.causal = causal;  // padding is on the right, so a causal mask also hides it
  if (!causal) {
    const at::Tensor lengths = rows.offsets.diff();
    const at::Tensor real = at::arange(rows.longest, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1);
    mask = self_attention_mask(real, rows.longest);
  }
  const at::Tensor out = attend(filled_up(query), filled_up(key), filled_up(value), heads, mask);
  return Taken::apply(out.flatten(0, 1), rows.filled_places);
}

// Returns the index of each token in a tensor [rows of `offsets`, longest], given the row of `offsets` that contains it.
at::Tensor places_filled_up(const at::Tensor& offsets, const at::Tensor& row_of, std::int64_t longest) {
  const at::Tensor first = offsets.index_select(0, row_of);
  return at::arange(row_of.size(0), first.options()) - first + row_of * longest;
}

// Returns a packing of `bound` tokens. The spare ones are split into rows of at most L tokens, so that the longest row has L tokens.
PackedRows bounded_rows(const at::Tensor& mask, std::int64_t bound) {
  PackedRows out;
  if (bound >= mask.numel()) return out;
  out.rows = mask.size(0);
  out.length = out.longest = mask.size(1);
  out.bounded = true;
  out.places = places_of(mask, bound);
  out.row_of = out.places.floor_divide(out.length).clamp_max_(out.rows - 1);
  const at::Tensor ends = mask.sum(1).cumsum(0);
  const std::int64_t spare_rows = (bound + out.length - 1) / out.length;
  const at::Tensor spare = ends.narrow(0, out.rows - 1, 1) + at::arange(1, spare_rows + 1, ends.options()) * out.length;
  out.offsets = at::cat({at::zeros({1}, ends.options()), ends, spare.clamp_max_(bound)}).to(at::kInt);
  if (mask.is_cpu()) {
    const at::Tensor counts = out.offsets.diff().to(at::kLong);
    out.filled_places = places_filled_up(out.offsets, at::repeat_interleave(counts), out.longest);
  }
  return out;
}

}  // namespace

at::Tensor length_bound(const at::Tensor& lengths) {
  at::Tensor out = at::zeros_like(lengths);
  const std::int64_t total = lengths.sum().item<std::int64_t>();
  // A negative number cannot be a length. All of the bound is in one entry, because only the sum counts.
  if (out.numel() > 0)
    out.view({-1})[0] = -std::max<std::int64_t>(1, (total + kPackingBucket - 1) / kPackingBucket) * kPackingBucket;
  return out;
}

std::int64_t bound_of(const at::Tensor& lengths) {
  if (!lengths.defined() || lengths.numel() == 0 || lengths.min().item<std::int64_t>() >= 0) return 0;
  return lengths.abs().sum().item<std::int64_t>();
}

PackedRows packed_rows(const at::Tensor& mask, const at::Tensor& lengths) {
  PackedRows out;
  if (!mask.defined() || (!lengths.defined() && !mask.is_cpu())) return out;
  if (const std::int64_t bound = bound_of(lengths)) return bounded_rows(mask, bound);
  const at::Tensor counts = lengths.defined() ? lengths : mask.sum(1);
  TORCH_CHECK(counts.is_cpu() && counts.scalar_type() == at::kLong && counts.sizes() == mask.sizes().slice(0, 1),
              "packed_rows: the lengths must be int64 [", mask.size(0), "] on the CPU, got ", counts.scalar_type(), " ",
              counts.sizes(), " on ", counts.device());
  const at::Tensor ends = counts.cumsum(0);
  const std::int64_t total = counts.size(0) > 0 ? ends[-1].item<std::int64_t>() : 0;
  if (total == mask.numel()) return out;
  out.rows = mask.size(0);
  out.length = mask.size(1);
  out.longest = std::max<std::int64_t>(1, counts.max().item<std::int64_t>());
  out.places = places_of(mask, total);
  out.row_of = out.places.floor_divide(out.length);
  at::Tensor offsets = at::zeros({out.rows + 1}, at::TensorOptions(at::kInt).pinned_memory(mask.is_cuda()));
  offsets.narrow(0, 1, out.rows).copy_(ends);
  out.offsets = offsets.to(mask.device(), at::kInt, /*non_blocking=*/true);
  if (mask.is_cpu()) {
    out.filled_places = places_filled_up(offsets, out.row_of, out.longest);
  }
  return out;
}

at::Tensor pack(const at::Tensor& x, const PackedRows& rows) {
  const at::Tensor all = x.flatten(0, 1);
  if (!rows.bounded) return Taken::apply(all, rows.places);
  return Taken::apply(at::cat({all, at::zeros_like(all.narrow(0, 0, 1))}), rows.places);  // the spare tokens take the last row
}

at::Tensor unpack(const at::Tensor& x, const PackedRows& rows) {
  const std::int64_t count = rows.rows * rows.length;
  const at::Tensor all = Spread::apply(x, rows.places, count + (rows.bounded ? 1 : 0));
  return (rows.bounded ? all.narrow(0, 0, count) : all).unflatten(0, {rows.rows, rows.length});
}

at::Tensor attend_in_rows(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                          const PackedRows& rows, bool causal) {
  if (!query.is_cuda()) return attend_filled_up(query, key, value, heads, rows, causal);
  // The kernels take heads whose width is a multiple of 8. Zeros change neither the products of queries and keys nor the other columns.
  const std::int64_t width = query.size(-1) / heads, missing = (8 - width % 8) % 8;
  const auto split = [&](const at::Tensor& x) {
    const at::Tensor each = x.unflatten(-1, {heads, width});
    return missing == 0 ? each : at::constant_pad_nd(each, {0, missing});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const at::Tensor out = attend_to_lengths(split(query), split(key), split(value), rows, causal, scale);
  return (missing == 0 ? out : out.narrow(-1, 0, width)).flatten(1);
}

}  // namespace tessera
