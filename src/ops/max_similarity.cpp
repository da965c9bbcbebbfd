#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/ops/max_similarity.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr std::int64_t kTileElements = 16 << 20;  // of one tile of products
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Gradients of out[b, c] = sum over kept n of x[b, n] . y[c, index[b, c, n]], weighted:
//   dx[b, n] += weight[b, c] y[c, index[b, c, n]]   and   dy[c, index[b, c, n]] += weight[b, c] x[b, n].
struct MaxGradient {
  at::Tensor x;       // [B, N, D]
  at::Tensor y;       // [C, M, D]
  at::Tensor index;   // [B, C, N] int32, in [0, M)
  at::Tensor weight;  // [B, C]
  at::Tensor keep;    // [B, N] bool
};

template <class T>
void axpy(T* out, const T* in, T factor, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) out[i] += factor * in[i];
}

// Rows of dx belong to one thread each, blocks of dy as well: no two threads write one place.
template <class T>
void add_on_cpu(const MaxGradient& g, at::Tensor& dx, at::Tensor& dy) {
  const std::int64_t batch = g.x.size(0), count = g.x.size(1), width = g.x.size(2), others = g.y.size(0),
                     choices = g.y.size(1);
  const T *x = g.x.const_data_ptr<T>(), *y = g.y.const_data_ptr<T>(), *weight = g.weight.const_data_ptr<T>();
  const int* index = g.index.const_data_ptr<int>();
  const bool* keep = g.keep.const_data_ptr<bool>();
  T *dx_data = dx.mutable_data_ptr<T>(), *dy_data = dy.mutable_data_ptr<T>();
  at::parallel_for(0, batch, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      for (std::int64_t n = 0; n < count; ++n) {
        if (!keep[b * count + n]) continue;
        for (std::int64_t c = 0; c < others; ++c) {
          const T w = weight[b * others + c];
          if (w != 0)
            axpy(dx_data + (b * count + n) * width, y + (c * choices + index[(b * others + c) * count + n]) * width, w,
                 width);
        }
      }
  });
  at::parallel_for(0, others, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c)
      for (std::int64_t b = 0; b < batch; ++b) {
        const T w = weight[b * others + c];
        if (w == 0) continue;
        for (std::int64_t n = 0; n < count; ++n)
          if (keep[b * count + n])
            axpy(dy_data + (c * choices + index[(b * others + c) * count + n]) * width, x + (b * count + n) * width, w,
                 width);
      }
  });
}

// The same from tensor operations, one c after another, for other devices.
void add_anywhere(const MaxGradient& g, at::Tensor& dx, at::Tensor& dy) {
  const at::Tensor kept = g.keep.to(g.x.scalar_type());
  for (std::int64_t c = 0; c < g.y.size(0); ++c) {
    const at::Tensor rows = g.index.select(1, c).reshape(-1).to(at::kLong);               // [B*N]
    const at::Tensor weight = (g.weight.select(1, c).unsqueeze(1) * kept).unsqueeze(-1);  // [B, N, 1]
    dx.add_(g.y[c].index_select(0, rows).view_as(g.x) * weight);
    at::Tensor block = dy[c];
    block.index_add_(0, rows, (g.x * weight).flatten(0, 1));
  }
}

void add_max_gradient(const MaxGradient& g, at::Tensor& dx, at::Tensor& dy) {
  if (!g.x.device().is_cpu())
    add_anywhere(g, dx, dy);
  else if (g.x.scalar_type() == at::kDouble)
    add_on_cpu<double>(g, dx, dy);
  else
    add_on_cpu<float>(g, dx, dy);
}

class MaxSimilarity : public torch::autograd::Function<MaxSimilarity> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& patches,
                                                const at::Tensor& tokens, const at::Tensor& patch_keep,
                                                const at::Tensor& token_keep, std::int64_t chunk) {
    const NoAutocast no_autocast;
    const std::int64_t images = patches.size(0), places = patches.size(1), width = patches.size(2),
                       texts = tokens.size(0), words = tokens.size(1);
    const at::Tensor flat = patches.reshape({images * places, width});
    const at::TensorOptions numbers = patches.options().requires_grad(false);
    const at::Tensor patch_index =
        at::empty({images, texts, places}, numbers.dtype(at::kInt));  // best token of each patch
    const at::Tensor token_index =
        at::empty({texts, images, words}, numbers.dtype(at::kInt));  // best patch of each token
    at::Tensor i2t = at::empty({images, texts}, numbers);
    at::Tensor t2i = at::empty({images, texts}, numbers);
    const at::Tensor patch_share = share(patch_keep, numbers.dtype());  // [B, 1]
    const at::Tensor token_share = share(token_keep, numbers.dtype());  // [C, 1]
    const at::Tensor drop_patch = ~patch_keep.unsqueeze(-1);            // [B, P, 1]
    for (std::int64_t start = 0; start < texts; start += chunk) {
      const std::int64_t count = std::min(chunk, texts - start);
      const at::Tensor keep = token_keep.narrow(0, start, count);  // [t, L]
      const at::Tensor products = at::matmul(flat, tokens.narrow(0, start, count).reshape({count * words, width}).t())
                                      .view({images, places, count, words});
      const auto [best_token, token] = products.masked_fill(~keep, kMinusInfinity).max(3);  // [B, P, t]
      const at::Tensor nothing = drop_patch | ~keep.any(1);                                 // [B, P, t]
      i2t.narrow(1, start, count).copy_(best_token.masked_fill(nothing, 0).sum(1) * patch_share);
      patch_index.narrow(1, start, count).copy_(token.transpose(1, 2));
      const auto [best_patch, patch] =
          products.masked_fill(drop_patch.unsqueeze(-1), kMinusInfinity).max(1);  // [B, t, L]
      t2i.narrow(1, start, count)
          .copy_(best_patch.masked_fill(~keep, 0).sum(2) * token_share.narrow(0, start, count).t());
      token_index.narrow(0, start, count).copy_(patch.transpose(0, 1));
    }
    ctx->save_for_backward(
        {patches, tokens, patch_keep, token_keep, patch_index, token_index, patch_share, token_share});
    return {i2t, t2i};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "max_similarity has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor patches = saved[0].contiguous(), tokens = saved[1].contiguous();
    const at::Tensor patch_keep = saved[2].contiguous(), token_keep = saved[3].contiguous();
    at::Tensor patch_gradient = at::zeros_like(patches, at::MemoryFormat::Contiguous);
    at::Tensor token_gradient = at::zeros_like(tokens, at::MemoryFormat::Contiguous);
    // A text without tokens has similarity 0 whatever the patches are.
    const at::Tensor i2t_weight = (gradients[0] * saved[6]).masked_fill(~token_keep.any(1), 0).contiguous();  // [B, C]
    const at::Tensor t2i_weight = (gradients[1].t() * saved[7]).contiguous();                                 // [C, B]
    add_max_gradient({patches, tokens, saved[4], i2t_weight, patch_keep}, patch_gradient, token_gradient);
    add_max_gradient({tokens, patches, saved[5], t2i_weight, token_keep}, token_gradient, patch_gradient);
    return {patch_gradient, token_gradient, {}, {}, {}};
  }

 private:
  // 1 / number of kept entries, [rows, 1].
  static at::Tensor share(const at::Tensor& keep, caffe2::TypeMeta dtype) {
    return keep.sum(1, /*keepdim=*/true).clamp_min(1).to(c10::typeMetaToScalarType(dtype)).reciprocal();
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> max_similarity(const at::Tensor& patches, const at::Tensor& tokens,
                                                 const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                 std::optional<std::int64_t> chunk) {
  if (tokens.size(1) == 0) {
    const at::Tensor nothing = at::zeros({patches.size(0), tokens.size(0)}, patches.options().requires_grad(false));
    return {nothing, nothing};
  }
  const std::int64_t per_text = patches.size(0) * patches.size(1) * tokens.size(1);
  const std::int64_t fitting = std::max<std::int64_t>(1, kTileElements / std::max<std::int64_t>(1, per_text));
  const auto both = MaxSimilarity::apply(patches, tokens, patch_keep, token_keep, chunk.value_or(fitting));
  return {both[0], both[1]};
}

}  // namespace tessera
