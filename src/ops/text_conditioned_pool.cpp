#include <tessera/ops/text_conditioned_pool.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/text_pool/text_pool.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include "src/ops/thread_pool.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNormEps = 1e-5;
constexpr std::int64_t kTileWeights = 1 << 18;  // attention weights in a tile on a CPU

// Inputs of the fused loss. The queries are already projected, and divided by the square root of a head's width. The text embeddings have
// unit length. The LayerNorm parameters of keys and values are folded into the projections that follow.
enum Input { kTokens, kQuery, kText, kKeyValueWeight, kKeyValueBias, kOutWeight, kOutBias, kScale, kBias, kInputs };
using Inputs = std::array<at::Tensor, kInputs>;

struct Attention {
  std::int64_t heads = 1;
  bool zero_token = true;
  bool bfloat16 = false;  // whether the operands of products are rounded to bfloat16
};

bool pool_has_kernel(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && has_kernels(tensor);
}

// Returns the setting that keeps kernels from starting threads, because the operator calls the kernels from threads of
// its own.
const kernels::Parallel& no_threads() {
  static const kernels::Parallel alone{1, {}};
  return alone;
}

void patch_softmax(const at::Tensor& scores, bool zero_token) {  // [rows, P], in place
  if (!pool_has_kernel(scores)) {
    const at::Tensor with_zero = zero_token ? at::constant_pad_nd(scores, {0, 1}, 0) : scores;
    scores.copy_(with_zero.softmax(-1).narrow(-1, 0, scores.size(-1)));
    return;
  }
  const kernels::PatchSoftmax call{scores.numel() / scores.size(-1), scores.size(-1), zero_token,
                                   scores.mutable_data_ptr<float>()};
  check_status(scores.is_cpu() ? kernels::cpu::patch_softmax(call, no_threads())
                               : kernels::cuda::patch_softmax(call, current_stream(scores)));
}

void patch_softmax_backward(const at::Tensor& weights, const at::Tensor& gradient) {  // overwrites `gradient`
  if (!pool_has_kernel(weights)) {
    gradient.sub_((weights * gradient).sum(-1, /*keepdim=*/true)).mul_(weights);
    return;
  }
  const kernels::PatchSoftmaxBackward call{weights.numel() / weights.size(-1), weights.size(-1),
                                           weights.const_data_ptr<float>(), gradient.mutable_data_ptr<float>()};
  check_status(weights.is_cpu() ? kernels::cpu::patch_softmax_backward(call, no_threads())
                                : kernels::cuda::patch_softmax_backward(call, current_stream(weights)));
}

// The losses of pairs, and the gradients of scale and bias that each pair contributes.
struct PairResults {
  at::Tensor losses, of_scale, of_bias;  // [rows]
};

// Computes the losses of pairs. With `gradient`, overwrites `pooled` and `text` [rows, D] with their gradients.
PairResults decide_pairs(const at::Tensor& pooled, const at::Tensor& text, const at::Tensor& labels,
                         const at::Tensor& scale, const at::Tensor& bias, bool gradient) {
  if (!pool_has_kernel(pooled)) {
    const at::Tensor label = labels.to(pooled.scalar_type());
    const at::Tensor length = pooled.norm(2, -1), share = length.clamp_min(1e-12).reciprocal();
    const at::Tensor cosine = (pooled * text).sum(-1) * share, against = -label * (scale * cosine + bias);
    const at::Tensor of_logit = -label * against.sigmoid(), both = (of_logit * scale * share).unsqueeze(1);
    PairResults out{-at::log_sigmoid(-against) * label.abs(), of_logit * cosine, of_logit};
    if (!gradient) return out;
    const at::Tensor of_itself = (cosine * share).masked_fill(length <= 1e-12, 0.0).unsqueeze(1);
    const at::Tensor of_pooled = both * (text - of_itself * pooled);
    text.copy_(both * pooled);
    pooled.copy_(of_pooled);
    return out;
  }
  const at::Tensor numbers = at::empty({3, pooled.size(0)}, pooled.options());
  kernels::PooledPairs call;
  call.rows = pooled.size(0);
  call.width = pooled.size(1);
  call.pooled = pooled.mutable_data_ptr<float>();
  call.text = text.mutable_data_ptr<float>();
  call.labels = labels.const_data_ptr<std::int8_t>();
  call.scale = scale.const_data_ptr<float>();
  call.bias = bias.const_data_ptr<float>();
  const PairResults out{numbers[0], numbers[1], numbers[2]};
  call.losses = out.losses.mutable_data_ptr<float>();
  call.of_scale = out.of_scale.mutable_data_ptr<float>();
  call.of_bias = out.of_bias.mutable_data_ptr<float>();
  call.gradient = gradient;
  check_status(pooled.is_cpu() ? kernels::cpu::pooled_pairs(call, no_threads())
                               : kernels::cuda::pooled_pairs(call, current_stream(pooled)));
  return out;
}

template <class Number>
void add_rows_on_cpu(const at::Tensor& to, const at::Tensor& places, const at::Tensor& rows) {
  const std::int64_t width = rows.size(1);
  auto* const out = to.mutable_data_ptr<Number>();
  const auto* const in = rows.const_data_ptr<Number>();
  const auto* const place = places.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    Number* const sum = out + place[row] * width;
    for (std::int64_t i = 0; i < width; ++i) sum[i] += in[row * width + i];
  }
}

// Adds rows: to[places[r]] += rows[r]. Does not use at::index_add_ on a CPU, because it would call an operator for each
// row.
void add_rows(const at::Tensor& to, const at::Tensor& places, const at::Tensor& rows) {
  if (!to.is_cpu())
    to.index_add_(0, places, rows);
  else if (to.scalar_type() == at::kDouble)
    add_rows_on_cpu<double>(to, places, rows);
  else
    add_rows_on_cpu<float>(to, places, rows);
}

// The results of products are float32, or float64. LibTorch multiplies bfloat16 with such results on GPUs alone.
void multiply(at::Tensor to, const at::Tensor& a, const at::Tensor& b) {  // [n, k] by [k, m], or batches of them
  if (a.scalar_type() == at::kBFloat16)
    a.dim() == 3 ? at::bmm_out(to, a, b, at::kFloat) : at::mm_out(to, a, b, at::kFloat);
  else
    a.dim() == 3 ? at::bmm_out(to, a, b) : at::mm_out(to, a, b);
}

// Computes to = sum + a b; `sum` may be `to`.
void multiply_and_add(at::Tensor to, const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  a.scalar_type() == at::kBFloat16 ? at::addmm_out(to, sum, a, b, at::kFloat) : at::addmm_out(to, sum, a, b);
}

// Returns true if a worker processes images one by one, so that the CPU's kernels find their weights in the core's cache. A GPU processes
// several images at once, because it would otherwise spend its time on launching small kernels.
bool one_by_one(const Inputs& in) {
  return in[kTokens].is_cpu() && pool_has_kernel(in[kTokens]);
}

// Processes the images of one thread. Accumulates the loss and the gradients of their pairs.
class PoolWorker {
 public:
  PoolWorker(const Inputs& in, const Attention& attention, bool gradient)
      : in_(in), attention_(attention), gradient_(gradient) {
    const at::Tensor& tokens = in[kTokens];
    for (const Input input : {kQuery, kKeyValueWeight, kOutWeight}) operands_[input] = operand(in[input]);
    loss_ = at::zeros({}, tokens.options().dtype(at::kDouble));
    if (!gradient) return;
    for (const Input input : {kQuery, kText, kKeyValueWeight, kKeyValueBias, kOutWeight, kOutBias})
      sums_[input] = at::zeros_like(in[input], at::MemoryFormat::Contiguous);
    for (const Input input : {kScale, kBias}) sums_[input] = at::zeros({}, loss_.options());
  }

  // Processes images and their pairs, which have texts [I, C] and labels [I, C]. Writes the tokens' gradient [I, P, D] to `of_tokens`.
  void visit(const at::Tensor& tokens, const at::Tensor& texts, const at::Tensor& labels, const at::Tensor& of_tokens) {
    const std::int64_t width = tokens.size(2), count = texts.size(1), some = images_at_once(count, tokens.size(1));
    for (std::int64_t first = 0; first < tokens.size(0); first += some) {
      const std::int64_t images = std::min(some, tokens.size(0) - first);
      const at::Tensor own = tokens.narrow(0, first, images).flatten(0, 1);  // [I P, D]
      const auto [normalized, mean, deviation] = at::native_layer_norm(own, {width}, {}, {}, kNormEps);
      const at::Tensor normal = operand(normalized), projected = at::empty({own.size(0), 2 * width}, own.options());
      multiply_and_add(projected, in_[kKeyValueBias], normal, operands_[kKeyValueWeight].t());
      const at::Tensor key_value = operand(projected);  // [I P, 2 D]
      const at::Tensor of_key_value = gradient_ ? at::zeros_like(projected) : at::Tensor();
      const std::int64_t tile = tile_size(count, tokens.size(1));
      for (std::int64_t from = 0; from < count; from += tile) {
        const std::int64_t pairs = std::min(tile, count - from);
        visit_tile(images, key_value, texts.narrow(0, first, images).narrow(1, from, pairs).flatten().contiguous(),
                   labels.narrow(0, first, images).narrow(1, from, pairs).flatten().contiguous(), of_key_value);
      }
      if (!gradient_) continue;
      const at::Tensor of_key_value_operand = operand(of_key_value), of_normal = at::empty(own.sizes(), own.options());
      multiply_and_add(sums_[kKeyValueWeight], sums_[kKeyValueWeight], of_key_value_operand.t(), normal);
      sums_[kKeyValueBias].add_(of_key_value.sum(0));
      multiply(of_normal, of_key_value_operand, operands_[kKeyValueWeight]);
      of_tokens.narrow(0, first, images)
          .copy_(std::get<0>(at::native_layer_norm_backward(of_normal, own, {width}, mean, deviation, {}, {}, {true, false, false}))
                     .view({images, -1, width}));
    }
  }

  const at::Tensor& loss() const { return loss_; }
  const Inputs& sums() const { return sums_; }

 private:
  // Returns the tensor as the operand of a product. A CPU's operands stay float32 when they have been rounded.
  at::Tensor operand(const at::Tensor& x) const {
    if (!attention_.bfloat16) return x;
    const at::Tensor rounded = x.to(at::kBFloat16);
    return x.is_cpu() ? rounded.to(x.scalar_type()) : rounded;
  }

  // Returns how many images are processed together. The weights and the vectors of these images' pairs each take at most 256 MiB on a GPU,
  // unless a single image needs more.
  std::int64_t images_at_once(std::int64_t pairs, std::int64_t patches) const {
    if (one_by_one(in_)) return 1;
    const std::int64_t most = in_[kTokens].is_cpu() ? kTileWeights : std::int64_t{1} << 26;
    const std::int64_t of_an_image = pairs * std::max(attention_.heads * patches, in_[kText].size(1));
    return std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, of_an_image));
  }

  // Returns the number of pairs per tile. On a CPU, all tiles have about the same size, and the weights of a tile fit in a core's
  // second-level cache. A GPU processes all of an image's pairs at once.
  std::int64_t tile_size(std::int64_t pairs, std::int64_t patches) const {
    if (!in_[kTokens].is_cpu()) return pairs;
    const std::int64_t most = std::clamp<std::int64_t>(kTileWeights / (attention_.heads * patches), 16, 512);
    const std::int64_t tiles = std::max<std::int64_t>(1, (pairs + most - 1) / most);  // an image may have no pairs
    return (pairs + tiles - 1) / tiles;
  }

  at::Tensor by_heads(std::int64_t images, const at::Tensor& rows) const {  // [I n, D] -> [I, H, n, d], a view
    return rows.view({images, -1, attention_.heads, rows.size(1) / attention_.heads}).transpose(1, 2);
  }

  // Returns the heads as a batch of matrices [I H, n, d]. With one image, this is a view of its rows.
  at::Tensor matrices(std::int64_t images, const at::Tensor& rows) const { return by_heads(images, rows).flatten(0, 1); }

  // Multiplies matrices of heads, a [I H, n, m] by b [I H, m, d], into rows [I n, D], or adds the products to the rows.
  void multiply_into(std::int64_t images, const at::Tensor& rows, const at::Tensor& a, const at::Tensor& b, bool add) const {
    at::Tensor heads = by_heads(images, rows);
    if (images > 1 || a.scalar_type() == at::kBFloat16) {
      const at::Tensor products = at::empty({a.size(0), a.size(1), b.size(2)}, rows.options());
      multiply(products, a, b);
      add ? heads.add_(products.view(heads.sizes())) : heads.copy_(products.view(heads.sizes()));
      return;
    }
    heads = heads.squeeze(0);
    add ? heads.baddbmm_(a, b) : at::bmm_out(heads, a, b);
  }

  at::Tensor room(at::Tensor& kept, at::IntArrayRef sizes) {
    const std::int64_t count = c10::multiply_integers(sizes);
    if (!kept.defined() || kept.numel() < count) kept = at::empty({count}, in_[kTokens].options());
    return kept.narrow(0, 0, count).view(sizes);
  }

  void visit_tile(std::int64_t images, const at::Tensor& key_value, const at::Tensor& texts, const at::Tensor& labels,
                  const at::Tensor& of_key_value) {
    const std::int64_t rows = texts.size(0), patches = key_value.size(0) / images, width = in_[kText].size(1);
    const at::Tensor keys = matrices(images, key_value.narrow(1, 0, width)), values = matrices(images, key_value.narrow(1, width, width));
    const at::Tensor query = matrices(images, operands_[kQuery].index_select(0, texts)), text = in_[kText].index_select(0, texts);
    at::Tensor weights = room(weights_, {images * attention_.heads, rows / images, patches});
    multiply(weights, query, keys.mT());
    patch_softmax(weights, attention_.zero_token);
    const at::Tensor shares = operand(weights);
    at::Tensor attended = room(attended_, {rows, width});
    multiply_into(images, attended, shares, values, /*add=*/false);
    at::Tensor pooled = room(pooled_, {rows, width});
    const at::Tensor attended_operand = operand(attended);
    multiply_and_add(pooled, in_[kOutBias], attended_operand, operands_[kOutWeight].t());
    const PairResults results = decide_pairs(pooled, text, labels, in_[kScale], in_[kBias], gradient_);
    loss_.add_(results.losses.sum());
    if (!gradient_) return;
    sums_[kScale].add_(results.of_scale.sum());
    sums_[kBias].add_(results.of_bias.sum());
    add_rows(sums_[kText], texts, text);
    const at::Tensor of_pooled = operand(pooled);
    multiply_and_add(sums_[kOutWeight], sums_[kOutWeight], of_pooled.t(), attended_operand);
    sums_[kOutBias].add_(pooled.sum(0));
    multiply(attended, of_pooled, operands_[kOutWeight]);  // overwrites `attended` with its gradient
    backward_through_heads(images, query, texts, keys, values, weights, shares, matrices(images, operand(attended)), of_key_value);
  }

  void backward_through_heads(std::int64_t images, const at::Tensor& query, const at::Tensor& texts, const at::Tensor& keys,
                              const at::Tensor& values, const at::Tensor& weights, const at::Tensor& shares,
                              const at::Tensor& of_attended, const at::Tensor& of_key_value) {
    const std::int64_t width = in_[kText].size(1);
    at::Tensor of_weights = room(of_weights_, weights.sizes());
    multiply(of_weights, of_attended, values.mT());
    multiply_into(images, of_key_value.narrow(1, width, width), shares.mT(), of_attended, /*add=*/true);
    patch_softmax_backward(weights, of_weights);
    const at::Tensor of_scores = operand(of_weights);
    multiply_into(images, of_key_value.narrow(1, 0, width), of_scores.mT(), query, /*add=*/true);
    const at::Tensor of_query = room(pooled_, {texts.size(0), width});
    multiply_into(images, of_query, of_scores, keys, /*add=*/false);
    add_rows(sums_[kQuery], texts, of_query);
  }

  const Inputs& in_;
  Attention attention_;
  bool gradient_;
  at::Tensor loss_;  // [] float64
  Inputs operands_;  // those inputs that are operands of products
  Inputs sums_;      // gradients of all inputs except the tokens
  at::Tensor weights_, of_weights_, attended_, pooled_;
};

struct PoolResult {
  at::Tensor loss;   // []
  Inputs gradients;  // gradients of all inputs; undefined if not needed
};

// Returns the number of threads. It is limited because each thread has its own sums of gradients, which together should need little
// memory compared with the tokens. It is 1 if there are no images.
std::int64_t worker_count(const Inputs& in, std::int64_t block) {
  if (!in[kTokens].is_cpu()) return 1;
  constexpr std::int64_t kFewest = 4;
  const std::int64_t text = std::max<std::int64_t>(1, in[kText].numel());
  const std::int64_t blocks = std::max<std::int64_t>(1, (in[kTokens].size(0) + block - 1) / block);
  const std::int64_t affordable = std::max(kFewest, in[kTokens].numel() / (2 * text));
  return std::min({static_cast<std::int64_t>(pool_threads()), blocks, affordable});
}

PoolResult pool_loss(const Inputs& in, const Attention& attention, const PairsOfImages& pairs, bool gradient) {
  const c10::OptionalDeviceGuard device(in[kTokens].device());
  const std::int64_t images = in[kTokens].size(0), block = one_by_one(in) ? 1 : 64;  // number of images per call of pairs()
  const std::int64_t workers = worker_count(in, block);
  PoolResult out;
  if (gradient) out.gradients[kTokens] = at::empty_like(in[kTokens], at::MemoryFormat::Contiguous);
  std::vector<std::unique_ptr<PoolWorker>> all(static_cast<std::size_t>(workers));
  run_on_pool(static_cast<int>(workers), [&](int number) {
    const at::NoGradGuard no_grad;  // grad mode is set per thread
    const NoAutocast no_autocast;
    auto& worker = all[static_cast<std::size_t>(number)] = std::make_unique<PoolWorker>(in, attention, gradient);
    for (std::int64_t first = number * block; first < images; first += workers * block) {
      const std::int64_t some = std::min(block, images - first);
      const ConditionedPairs own = pairs(first, some);
      worker->visit(in[kTokens].narrow(0, first, some), own.texts, own.labels,
                    gradient ? out.gradients[kTokens].narrow(0, first, some) : at::Tensor());
    }
  });
  const at::ScalarType type = in[kTokens].scalar_type();
  at::Tensor loss = all[0]->loss();
  for (std::size_t i = 1; i < all.size(); ++i) loss = loss + all[i]->loss();
  out.loss = loss.to(type);
  if (!gradient) return out;
  for (int input = kQuery; input < kInputs; ++input) {
    at::Tensor& sum = out.gradients[static_cast<std::size_t>(input)];
    sum = all[0]->sums()[static_cast<std::size_t>(input)];
    for (std::size_t i = 1; i < all.size(); ++i) sum.add_(all[i]->sums()[static_cast<std::size_t>(input)]);
    sum = sum.to(type);
  }
  return out;
}

// The data that the backward pass needs in addition to the inputs.
struct PoolCall : torch::CustomClassHolder {
  PoolCall(Attention given, PairsOfImages of_images) : attention(given), pairs(std::move(of_images)) {}
  Attention attention;
  PairsOfImages pairs;
  bool recorded = at::GradMode::is_enabled();  // forward() itself always runs without recording
  Inputs gradients;  // computed by the forward pass; the first backward pass moves them out
};

class ConditionedLoss : public torch::autograd::Function<ConditionedLoss> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& tokens, const at::Tensor& query,
                            const at::Tensor& text, const at::Tensor& key_value_weight,
                            const at::Tensor& key_value_bias, const at::Tensor& out_weight, const at::Tensor& out_bias,
                            const at::Tensor& scale, const at::Tensor& bias, const c10::intrusive_ptr<PoolCall>& call) {
    const NoAutocast no_autocast;
    const Inputs in{tokens, query, text, key_value_weight, key_value_bias, out_weight, out_bias, scale, bias};
    const bool gradient =
        call->recorded && std::any_of(in.begin(), in.end(), [](const auto& each) { return each.requires_grad(); });
    PoolResult result = pool_loss(in, call->attention, call->pairs, gradient);
    call->gradients = std::move(result.gradients);
    ctx->save_for_backward({in.begin(), in.end()});
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return result.loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list at_loss) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "text_conditioned_loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto call = c10::static_intrusive_pointer_cast<PoolCall>(ctx->saved_data["call"].toCapsule());
    Inputs gradients = std::exchange(call->gradients, {});
    if (!gradients[kTokens].defined()) {  // an earlier backward pass over the retained graph took the gradients
      const auto saved = ctx->get_saved_variables();
      Inputs in;
      std::copy(saved.begin(), saved.end(), in.begin());
      gradients = pool_loss(in, call->attention, call->pairs, true).gradients;
    }
    variable_list out;
    for (at::Tensor& each : gradients) out.push_back(each.mul_(at_loss[0]));
    out.emplace_back();
    return out;
  }
};

at::Tensor normalized_over_width(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kNormEps);
}

void check_parameters(const TextPoolParameters& p, const at::Tensor& tokens) {
  const std::int64_t width = tokens.size(-1);
  const auto fits = [&](const at::Tensor& tensor, at::IntArrayRef sizes, const char* name) {
    TORCH_CHECK(tensor.defined() && tensor.sizes() == sizes && tensor.is_floating_point(),
                "text_conditioned_pool: ", name, " must be floating ", sizes, ", got ",
                tensor.defined() ? tensor.sizes() : at::IntArrayRef());
    TORCH_CHECK(tensor.device() == tokens.device(), "text_conditioned_pool: ", name, " is on ", tensor.device(),
                ", image_tokens on ", tokens.device());
  };
  fits(p.query_norm_weight, {width}, "the queries' norm weight");
  fits(p.query_norm_bias, {width}, "the queries' norm bias");
  fits(p.key_norm_weight, {width}, "the keys' norm weight");
  fits(p.key_norm_bias, {width}, "the keys' norm bias");
  fits(p.value_norm_weight, {width}, "the values' norm weight");
  fits(p.value_norm_bias, {width}, "the values' norm bias");
  fits(p.in_weight, {3 * width, width}, "in_weight");
  fits(p.in_bias, {3 * width}, "in_bias");
  fits(p.out_weight, {width, width}, "out_weight");
  fits(p.out_bias, {width}, "out_bias");
  TORCH_CHECK(p.heads >= 1 && width % p.heads == 0, "text_conditioned_pool: ", p.heads,
              " heads do not divide the width ", width);
}

void check_tokens(const at::Tensor& tokens, const at::Tensor& texts, const char* name) {
  TORCH_CHECK(tokens.dim() == 3 && tokens.is_floating_point() && tokens.size(1) > 0 && tokens.size(2) > 0,
              "text_conditioned_pool: image_tokens must be floating [B, P, D] with P and D at least 1, got ",
              tokens.scalar_type(), " ", tokens.sizes());
  TORCH_CHECK(texts.is_floating_point() && texts.size(-1) == tokens.size(2) && texts.device() == tokens.device(),
              "text_conditioned_pool: ", name, " must be floating and ", tokens.size(2), " wide on ", tokens.device(),
              " as image_tokens are, got ", texts.scalar_type(), " ", texts.sizes(), " on ", texts.device());
}

at::Tensor part_of(const at::Tensor& projection, std::int64_t part) {
  const std::int64_t width = projection.size(0) / 3;
  return projection.narrow(0, part * width, width);
}

at::Tensor project_query(const at::Tensor& texts, const TextPoolParameters& p) {
  return at::linear(normalized_over_width(texts, p.query_norm_weight, p.query_norm_bias), part_of(p.in_weight, 0),
                    part_of(p.in_bias, 0));
}

TextPoolParameters converted(TextPoolParameters p, at::ScalarType type) {
  for (at::Tensor* each : {&p.query_norm_weight, &p.query_norm_bias, &p.key_norm_weight, &p.key_norm_bias, &p.value_norm_weight,
                           &p.value_norm_bias, &p.in_weight, &p.in_bias, &p.out_weight, &p.out_bias})
    *each = each->to(type);
  return p;
}

PairsOfImages given_pairs(const at::Tensor& texts, const at::Tensor& labels) {
  return [texts, labels](std::int64_t first, std::int64_t count) {
    return ConditionedPairs{texts.narrow(0, first, count), labels.narrow(0, first, count)};
  };
}

// The Python operators take the parameters as a list, in the order of the members of TextPoolParameters. They take the pairs of all images
// at once.
TextPoolParameters parameters_of(at::TensorList tensors, std::int64_t heads, bool zero_token) {
  TORCH_CHECK(tensors.size() == 10, "text_conditioned_pool: expected 10 parameters, got ", tensors.size());
  return {tensors[0], tensors[1], tensors[2], tensors[3], tensors[4], tensors[5],
          tensors[6], tensors[7], tensors[8], tensors[9], heads,      zero_token};
}

at::Tensor operate_pool(const at::Tensor& tokens, const at::Tensor& queries, at::TensorList parameters,
                        std::int64_t heads, bool zero_token) {
  return text_conditioned_pool(tokens, queries, parameters_of(parameters, heads, zero_token));
}

at::Tensor operate_loss(const at::Tensor& tokens, const at::Tensor& texts, const at::Tensor& scale,
                        const at::Tensor& bias, at::TensorList parameters, const at::Tensor& pair_texts,
                        const at::Tensor& pair_labels, std::int64_t heads, bool zero_token) {
  TORCH_CHECK(pair_texts.dim() == 2 && pair_texts.size(0) == tokens.size(0) && pair_texts.scalar_type() == at::kLong,
              "text_conditioned_loss: pair_texts must be int64 [B, C] with B = ", tokens.size(0), ", got ",
              pair_texts.scalar_type(), " ", pair_texts.sizes());
  TORCH_CHECK(pair_labels.sizes() == pair_texts.sizes() && pair_labels.scalar_type() == at::kChar,
              "text_conditioned_loss: pair_labels must be int8 ", pair_texts.sizes(), " as pair_texts is, got ",
              pair_labels.scalar_type(), " ", pair_labels.sizes());
  if (pair_texts.is_cpu() && pair_texts.numel() > 0) {
    const auto [least, most] = pair_texts.aminmax();
    TORCH_CHECK(least.item<std::int64_t>() >= 0 && most.item<std::int64_t>() < texts.size(0),
                "text_conditioned_loss: pair_texts must be in [0, ", texts.size(0), "), the rows of texts");
  }
  return text_conditioned_loss(tokens, texts, scale, bias, parameters_of(parameters, heads, zero_token),
                               given_pairs(pair_texts, pair_labels));
}

}  // namespace

at::Tensor text_conditioned_pool(const at::Tensor& image_tokens, const at::Tensor& queries,
                                 const TextPoolParameters& p) {
  check_tokens(image_tokens, queries, "queries");
  check_parameters(p, image_tokens);
  TORCH_CHECK(queries.dim() == 2 || (queries.dim() == 3 && queries.size(0) == image_tokens.size(0)),
              "text_conditioned_pool: queries must be [Q, D] or [B, Q, D] with B = ", image_tokens.size(0), ", got ",
              queries.sizes());
  const auto by_heads = [&](const at::Tensor& x) {  // [.., n, D] -> [.., H, n, d]
    return x.unflatten(-1, {p.heads, -1}).transpose(-3, -2);
  };
  const auto projected = [&](const at::Tensor& weight, const at::Tensor& bias, std::int64_t part) {
    const at::Tensor x = at::linear(normalized_over_width(image_tokens, weight, bias), part_of(p.in_weight, part),
                                    part_of(p.in_bias, part));
    return by_heads(p.zero_token ? at::constant_pad_nd(x, {0, 0, 0, 1}) : x);
  };
  const at::Tensor keys = projected(p.key_norm_weight, p.key_norm_bias, 1),
                   values = projected(p.value_norm_weight, p.value_norm_bias, 2);
  at::Tensor query = by_heads(project_query(queries, p));
  if (query.dim() == 3) query = query.unsqueeze(0).expand({image_tokens.size(0), -1, -1, -1});
  const at::Tensor attended = at::scaled_dot_product_attention(query.to(keys.scalar_type()), keys, values);
  return at::linear(attended.transpose(1, 2).flatten(2), p.out_weight, p.out_bias);
}

at::Tensor text_conditioned_loss(const at::Tensor& image_tokens, const at::Tensor& texts, const at::Tensor& scale,
                                 const at::Tensor& bias, const TextPoolParameters& given, const PairsOfImages& pairs) {
  check_tokens(image_tokens, texts, "texts");
  check_parameters(given, image_tokens);
  TORCH_CHECK(texts.dim() == 2, "text_conditioned_loss: texts must be [M, D], got ", texts.sizes());
  const NoAutocast no_autocast;
  const at::ScalarType type = compute_dtype(image_tokens);
  const at::Tensor tokens = image_tokens.to(type), wide_texts = texts.to(type);
  const bool narrow = image_tokens.scalar_type() == at::kBFloat16;
  const TextPoolParameters p = converted(given, type);
  const double share = 1.0 / std::sqrt(static_cast<double>(tokens.size(2) / p.heads));
  // Folds the weight and bias of a LayerNorm into the projection that follows it.
  const auto folded_weight = [&](const at::Tensor& weight, std::int64_t part) { return part_of(p.in_weight, part) * weight; };
  const auto folded_bias = [&](const at::Tensor& norm_bias, std::int64_t part) {
    return at::mv(part_of(p.in_weight, part), norm_bias) + part_of(p.in_bias, part);
  };
  const auto ready = [&](const at::Tensor& tensor) { return tensor.to(type).contiguous(); };
  const at::Tensor weight = at::cat({folded_weight(p.key_norm_weight, 1), folded_weight(p.value_norm_weight, 2)}),
                   key_value_bias = at::cat({folded_bias(p.key_norm_bias, 1), folded_bias(p.value_norm_bias, 2)});
  return ConditionedLoss::apply(ready(tokens), ready(project_query(wide_texts, p) * share), ready(unit_rows(wide_texts)),
                                ready(weight), ready(key_value_bias), ready(p.out_weight), ready(p.out_bias),
                                ready(scale), ready(bias),
                                c10::make_intrusive<PoolCall>(Attention{p.heads, p.zero_token, narrow}, pairs));
}

void define_text_conditioned_pool(torch::Library& library) {
  library.def(
      "text_conditioned_pool(Tensor image_tokens, Tensor queries, Tensor[] parameters, int heads=8, bool "
      "zero_token=True) -> Tensor");
  library.def(
      "text_conditioned_loss(Tensor image_tokens, Tensor texts, Tensor scale, Tensor bias, Tensor[] parameters, Tensor "
      "pair_texts, Tensor pair_labels, int heads=8, bool zero_token=True) -> Tensor");
  library.impl("text_conditioned_pool", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(operate_pool)));
  library.impl("text_conditioned_loss", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(operate_loss)));
}

}  // namespace tessera
