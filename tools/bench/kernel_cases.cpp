#include "tools/bench/kernel_cases.h"

#include <cmath>
#include <memory>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/self_attention.h"
#include "src/ops/linear_map.h"
#include "src/ops/token_contrast.h"
#include "src/ops/weight_copies.h"
#include "src/optim/adamw.h"
#include "src/optim/clip_grad_norm.h"
#include <tessera/base/error.h>
#include <tessera/ops/flops_regularizer.h>
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/max_similarity.h>
#include <tessera/ops/numeric.h>
#include <tessera/ops/slot_attention.h>
#include <tessera/ops/sparsify_group.h>
#include <tessera/ops/token_max_projection.h>

namespace tessera::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

struct KernelPass {
  double flops, bytes;
};

// An operator and the same computation composed of LibTorch's operators, with their common inputs. All inputs get gradients.
struct Comparison {
  std::string kernel, shape;
  Tensors inputs;
  Function fused, composed;
  KernelPass forward, backward;
};

// One of the two functions of a comparison, with the tensors that its passes need.
class Side {
 public:
  Side(const Comparison& comparison, Function function) : function_(std::move(function)) {
    for (const at::Tensor& input : comparison.inputs) inputs_.push_back(input.detach().set_requires_grad(true));
  }

  void forward() const { function_(inputs_); }
  // The first call builds the autograd graph, and later calls use it again.
  void backward() {
    if (outputs_.empty()) outputs_ = function_(inputs_);
    run_backward(outputs_, /*again=*/true);
  }
  void both() { run_backward(function_(inputs_), /*again=*/false); }

 private:
  void run_backward(const Tensors& outputs, bool again) {
    if (gradients_.empty())
      for (const at::Tensor& output : outputs) gradients_.push_back(at::ones_like(output));
    torch::autograd::grad(outputs, inputs_, gradients_, /*retain_graph=*/again);
  }

  Function function_;
  Tensors inputs_, outputs_, gradients_;
};

std::vector<KernelCase> both_passes(const Comparison& c) {
  const auto fused = std::make_shared<Side>(c, c.fused), composed = std::make_shared<Side>(c, c.composed);
  const at::ScalarType dtype = c.inputs.front().scalar_type();
  std::vector<KernelCase> cases;
  for (const bool forward : {true, false}) {
    const KernelPass& cost = forward ? c.forward : c.backward;
    const auto pass = [forward](const std::shared_ptr<Side>& side) {
      return forward ? std::function<void()>([side] { side->forward(); }) : [side] { side->backward(); };
    };
    const auto from_start = [forward](const std::shared_ptr<Side>& side) {
      return forward ? std::function<void()>([side] { side->forward(); }) : [side] { side->both(); };
    };
    cases.push_back({c.kernel, forward ? "forward" : "backward", c.shape, dtype, cost.flops, cost.bytes, pass(fused),
                     pass(composed), from_start(fused), from_start(composed)});
  }
  return cases;
}

double bytes_of(const at::Tensor& tensor) {
  return static_cast<double>(tensor.nbytes());
}

}  // namespace

at::Tensor composed_sparsify_group(const at::Tensor& text, const at::Tensor& image) {
  const at::Tensor similarity = at::matmul(text, image.mT());  // [B, L, P]
  const at::Tensor low = similarity.amin(-1, /*keepdim=*/true), high = similarity.amax(-1, /*keepdim=*/true);
  const at::Tensor scaled = (similarity - low) / (high - low);
  const at::Tensor kept = at::where(scaled < 1.0 / static_cast<double>(image.size(1)), 0.0, scaled);
  return at::matmul(kept / kept.sum(-1, /*keepdim=*/true), image);
}

at::Tensor composed_flops_regularizer(const at::Tensor& encoding) {
  return encoding.mean(0, /*keepdim=*/false, at::kFloat).square().sum();
}

std::pair<at::Tensor, at::Tensor> composed_max_similarity(const at::Tensor& patches, const at::Tensor& tokens) {
  const at::Tensor products = at::matmul(patches.unsqueeze(1), tokens.mT());  // [B, C, P, L]
  return {std::get<0>(products.max(3)).mean(2), std::get<0>(products.max(2)).mean(2)};
}

at::Tensor composed_slot_attention(const at::Tensor& tokens, const at::Tensor& queries, const at::Tensor& weight,
                                   const at::Tensor& bias) {
  const std::int64_t slots = queries.size(0), key = queries.size(1);
  const at::Tensor keys = at::linear(tokens, weight, bias).unflatten(2, {slots, key}).transpose(1, 2);  // [B, L, N, D]
  const at::Tensor scaled = (queries / std::sqrt(static_cast<double>(key))).unsqueeze(1);               // [L, 1, D]
  return at::matmul(at::matmul(scaled, keys.mT()).softmax(-1), keys).squeeze(2);
}

at::Tensor composed_token_max_projection(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& bias) {
  return std::get<0>(at::linear(tokens, table, bias).max(1)).relu().log1p();
}

at::Tensor composed_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                         const at::Tensor& targets) {
  return at::cross_entropy_loss(at::linear(hidden, weight).to(at::kFloat), targets);
}

at::Tensor composed_linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                              const at::Tensor& weights) {
  const at::Tensor logits = at::linear(hidden, weight).to(at::kFloat);
  const at::Tensor target = at::zeros(logits.sizes(), logits.options()).scatter_(1, ids, weights);
  return -(target * logits.log_softmax(1)).sum() / hidden.size(0);
}

at::Tensor composed_token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& scale) {
  const at::Tensor logits = at::matmul(unit_rows(to_compute(queries)), unit_rows(to_compute(keys)).mT()) * scale;  // [B, L, L]
  return (logits.logsumexp(2) + logits.logsumexp(1)) / 2 - logits.diagonal(0, 1, 2);
}

std::vector<KernelCase> token_contrast_cases(const ContrastShape& shape, const at::Device& device, at::ScalarType dtype) {
  const auto [batch, tokens, width] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  const at::Tensor keys = at::randn({batch, tokens, width}, options), queries = at::randn({batch, tokens, width}, options) + 0.5 * keys,
                   scale = at::full({}, 14.0, options.dtype(at::kFloat));
  const double product = 2.0 * static_cast<double>(queries.numel()) * static_cast<double>(tokens),
               losses = sizeof(float) * static_cast<double>(batch * tokens), inputs = bytes_of(queries) + bytes_of(keys);
  return both_passes({"token_contrast",
                      concat("B=", batch, " L=", tokens, " D=", width),
                      {queries, keys, scale},
                      [](const Tensors& x) { return Tensors{normalized_token_contrast(x[0], x[1], {}, x[2])}; },
                      [](const Tensors& x) { return Tensors{composed_token_contrast(x[0], x[1], x[2])}; },
                      {product, inputs + losses},
                      {3 * product, 2 * inputs + losses}});
}

std::vector<KernelCase> sparsify_group_cases(const GroupShape& shape, const at::Device& device, at::ScalarType dtype) {
  const auto [batch, tokens, patches, width] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  const at::Tensor text = at::randn({batch, tokens, width}, options),
                   image = at::randn({batch, patches, width}, options);
  const at::Tensor mask = at::ones({batch, tokens}, options.dtype(at::kBool));
  const double product = 2.0 * static_cast<double>(text.numel()) * static_cast<double>(patches);
  const double statistics = 3.0 * sizeof(float) * static_cast<double>(batch * tokens);  // bytes of each token's minimum, maximum and sum
  return both_passes(
      {"sparsify_group",
       concat("B=", batch, " L=", tokens, " P=", patches, " D=", width),
       {text, image},
       [mask](const Tensors& x) { return Tensors{sparsify_group(x[0], x[1], mask, SparsifySettings{})}; },
       [](const Tensors& x) { return Tensors{composed_sparsify_group(x[0], x[1])}; },
       {2 * product, 2 * bytes_of(text) + bytes_of(image) + statistics},
       {5 * product, 3 * bytes_of(text) + 2 * bytes_of(image) + statistics}});
}

std::vector<KernelCase> flops_regularizer_cases(const EncodingShape& shape, const at::Device& device,
                                                at::ScalarType dtype) {
  const at::Tensor encoding = at::rand({shape.rows, shape.columns}, at::TensorOptions(device).dtype(dtype));
  const double all = bytes_of(encoding), row = all / static_cast<double>(shape.rows),
               means = sizeof(float) * static_cast<double>(shape.columns);
  const std::string sizes = concat("N=", shape.rows, " V=", shape.columns);
  // The gradient is one row that all rows share.
  std::vector<KernelCase> cases =
      both_passes({"flops_regularizer",
                   sizes,
                   {encoding},
                   [](const Tensors& x) { return Tensors{flops_regularizer(x[0])}; },
                   [](const Tensors& x) { return Tensors{composed_flops_regularizer(x[0])}; },
                   {0, all + means},
                   {0, means + row}});
  const auto add_backward = [&](const char* kind, const Function& fused, const Function& composed, double bytes) {
    cases.push_back(both_passes({"flops_regularizer", sizes, {encoding}, fused, composed, {}, {0, bytes}}).back());
    cases.back().pass += concat(", ", kind);
  };
  add_backward(
      "all rows written", [](const Tensors& x) { return Tensors{flops_regularizer(x[0], /*dense_gradient=*/true)}; },
      [](const Tensors& x) {
        const at::Tensor same = x[0].alias();
        same.register_hook([](const at::Tensor& gradient) { return gradient.contiguous(); });
        return Tensors{composed_flops_regularizer(same)};
      },
      means + all);
  // The encoding has a second consumer, whose gradient is dense, so autograd adds the two gradients.
  add_backward(
      "added to another", [](const Tensors& x) { return Tensors{flops_regularizer(x[0]), x[0].alias()}; },
      [](const Tensors& x) { return Tensors{composed_flops_regularizer(x[0]), x[0].alias()}; }, means + row + 2 * all);
  return cases;
}

std::vector<KernelCase> slot_attention_cases(const SlotShape& shape, const at::Device& device, at::ScalarType dtype) {
  const auto [batch, slots, tokens, width, key] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  const at::Tensor x = at::randn({batch, tokens, width}, options), queries = at::randn({slots, key}, options),
                   weight = at::randn({slots * key, width}, options) / std::sqrt(static_cast<double>(width)),
                   bias = at::zeros({slots * key}, options);
  const double per_token = 2.0 * static_cast<double>(batch * tokens * slots * width),  // FLOPs of multiplying each token by [L, d]
      per_slot = 2.0 * static_cast<double>(batch * slots * width * key),
               once = 2.0 * static_cast<double>(slots * width * key);
  const double inputs = bytes_of(x) + bytes_of(queries) + bytes_of(weight) + bytes_of(bias);
  const double heads = static_cast<double>(batch * slots * key) * static_cast<double>(x.element_size());
  return both_passes({"slot_attention",
                      concat("B=", batch, " L=", slots, " N=", tokens, " d=", width, " D=", key),
                      {x, queries, weight, bias},
                      [slots = slots](const Tensors& in) {
                        SlotAttentionInputs all{.tokens = in[0],
                                                .mask = {},
                                                .queries = in[1].unsqueeze(1),
                                                .key_weight = in[2].unflatten(0, {slots, -1}),
                                                .value_weight = {},
                                                .value_bias = in[3].unflatten(0, {slots, -1})};
                        all.value_weight = all.key_weight;
                        return Tensors{slot_attention(all).heads};
                      },
                      [](const Tensors& in) { return Tensors{composed_slot_attention(in[0], in[1], in[2], in[3])}; },
                      {2 * per_token + per_slot + once, inputs + heads},
                      {5 * per_token + 2 * per_slot + 2 * once, 2 * inputs + heads}});
}

std::vector<KernelCase> token_max_projection_cases(const ProjectionShape& shape, const at::Device& device,
                                                   at::ScalarType dtype) {
  const auto [batch, positions, vocabulary, width] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  // Inputs as at the start of training: the tokens come from a LayerNorm, and about half of the maxima are below 0.
  const at::Tensor tokens = at::randn({batch, positions, width}, options),
                   table = 0.02 * at::randn({vocabulary, width}, options),
                   bias = at::full({vocabulary}, -0.02 * 2.7 * std::sqrt(static_cast<double>(width)), options);
  const double entries = static_cast<double>(batch * vocabulary), inputs = bytes_of(tokens) + bytes_of(table);
  constexpr double kEntry = sizeof(float) + sizeof(std::int64_t);  // bytes of an entry of the encoding and of its argmax
  return both_passes({"token_max_projection",
                      concat("B=", batch, " N=", positions, " V=", vocabulary, " w=", width),
                      {tokens, table, bias},
                      [](const Tensors& in) { return Tensors{token_max_projection(in[0], {}, in[1], in[2]).encoding}; },
                      [](const Tensors& in) { return Tensors{composed_token_max_projection(in[0], in[1], in[2])}; },
                      {2.0 * static_cast<double>(batch * positions * width) * static_cast<double>(vocabulary),
                       inputs + kEntry * entries},
                      {0, 2 * inputs + (kEntry + sizeof(float)) * entries}});
}

std::vector<KernelCase> self_attention_cases(const AttentionShape& shape, const at::Device& device, at::ScalarType dtype) {
  const auto [batch, tokens, heads, width] = shape;
  const at::Tensor qkv = at::randn({batch, tokens, 3 * heads * width}, at::TensorOptions(device).dtype(dtype));
  const SelfAttentionProblem problem = attention_problem(qkv, heads, {}).value();
  const TuningKey key = attention_tuning_key(problem);
  const double product = 2.0 * static_cast<double>(batch * heads * width) * static_cast<double>(tokens * tokens), all = bytes_of(qkv),
               statistics = sizeof(float) * static_cast<double>(batch * tokens * heads);
  std::vector<KernelCase> cases;
  for (const std::string& configuration : attention_configurations(problem)) {
    if (configuration == "libtorch" || (configuration == "composed" && !device.is_cpu())) continue;
    const auto with = [=, heads = heads](const std::string& name) {
      return [=](const Tensors& x) {
        const ForcedConfiguration forced(key, name);
        return Tensors{self_attention(x[0], heads, {})};
      };
    };
    const std::vector<KernelCase> both = both_passes({concat("self_attention ", configuration),
                                                      concat("B=", batch, " N=", tokens, " H=", heads, " d=", width),
                                                      {qkv},
                                                      with(configuration),
                                                      with("libtorch"),
                                                      {2 * product, all * 4 / 3 + statistics},
                                                      {5 * product, all * 8 / 3 + statistics}});
    cases.insert(cases.end(), both.begin(), both.end());
  }
  return cases;
}

std::vector<KernelCase> linear_cross_entropy_cases(const CrossEntropyShape& shape, const at::Device& device,
                                                   at::ScalarType dtype) {
  const auto [tokens, vocabulary, width, words] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  const at::Tensor hidden = at::randn({tokens, width}, options),
                   weight = 0.02 * at::randn({vocabulary, width}, options),
                   targets = at::randint(vocabulary, {tokens}, options.dtype(at::kLong));
  const double product = 2.0 * static_cast<double>(tokens * vocabulary) * static_cast<double>(width),
               inputs = bytes_of(hidden) + bytes_of(weight);
  // The backward passes are listed with 0 FLOPs, because the forward passes have already computed the gradients.
  if (words > 0) {
    const at::Tensor ids = (at::randint(vocabulary, {tokens, 1}, targets.options()) + at::arange(words, targets.options()))
                               .remainder(vocabulary),
                     weights = at::rand({tokens, words}, options.dtype(at::kFloat)).softmax(1);
    return both_passes(
        {"linear_soft_cross_entropy",
         concat("T=", tokens, " V=", vocabulary, " D=", width, " n=", words),
         {hidden, weight},
         [=](const Tensors& in) { return Tensors{linear_soft_cross_entropy(in[0], in[1], ids, weights)}; },
         [=](const Tensors& in) { return Tensors{composed_linear_soft_cross_entropy(in[0], in[1], ids, weights)}; },
         {3 * product, 2 * inputs + bytes_of(ids) + bytes_of(weights)},
         {0, 2 * inputs}});
  }
  return both_passes(
      {"linear_cross_entropy",
       concat("T=", tokens, " V=", vocabulary, " D=", width),
       {hidden, weight},
       [targets](const Tensors& in) { return Tensors{linear_cross_entropy(in[0], in[1], targets)}; },
       [targets](const Tensors& in) { return Tensors{composed_linear_cross_entropy(in[0], in[1], targets)}; },
       {3 * product, 2 * inputs + bytes_of(targets)},
       {0, 2 * inputs}});
}

std::vector<KernelCase> linear_map_cases(const MapShape& shape, const at::Device& device, at::ScalarType dtype) {
  const auto [rows, in, out] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  const auto matrix = [&options](std::int64_t height, std::int64_t width, double deviation) {
    return deviation * at::randn({height, width}, options);
  };
  const double deviation = 1.0 / std::sqrt(static_cast<double>(in));
  const MapParameters first = {matrix(out, in, deviation), matrix(1, out, 1.0).flatten(), {}};
  const at::Tensor x = matrix(rows, in, 1.0), second = matrix(in, out, deviation), grad = matrix(rows, in, 1.0);
  const at::Tensor hidden = matrix(rows, out, 1.0);
  const std::string sizes = concat("T=", rows, " I=", in, " O=", out);
  const double flops = 2.0 * static_cast<double>(rows * in) * static_cast<double>(out), sums = sizeof(float) * static_cast<double>(out);
  std::vector<KernelCase> cases;
  const auto add = [&](const char* pass, double bytes, const std::function<void()>& run, const std::function<void()>& composed) {
    const auto unrecorded = [](const std::function<void()>& call) {
      return [call] {
        const at::NoGradGuard no_grad;
        call();
      };
    };
    const auto ours = unrecorded(run), theirs = unrecorded(composed);
    cases.push_back({"linear_map", pass, sizes, dtype, flops, bytes, ours, theirs, ours, theirs});
  };
  add(
      "forward, gelu", bytes_of(x) + bytes_of(first.weight) + bytes_of(first.bias) + 2 * bytes_of(hidden),
      [=] { map_and_activate(x, first, /*by_functional=*/false, "gelu"); }, [=] { at::gelu(at::linear(x, first.weight, first.bias)); });
  add(
      "input gradient, gelu", bytes_of(grad) + bytes_of(second) + 2 * bytes_of(hidden) + sums,
      [=] { activated_input_gradient(grad, second, hidden, "gelu", /*bias_wanted=*/true); },
      [=] { at::gelu_backward(grad.mm(second), hidden).sum(0, /*keepdim=*/false, at::kFloat); });
  add(
      "parameter gradients", bytes_of(hidden) + bytes_of(x) + sizeof(float) * static_cast<double>(in * out) + sums,
      [=] { parameter_gradient(hidden, x, at::kFloat, /*weight_wanted=*/true, /*bias_wanted=*/true); },
      [=] {
        hidden.t().mm(x).to(at::kFloat);
        hidden.sum(0, /*keepdim=*/false, at::kFloat);
      });
  return cases;
}

std::vector<KernelCase> max_similarity_cases(const GroupShape& shape, const at::Device& device, at::ScalarType dtype) {
  const auto [batch, words, places, width] = shape;
  const at::TensorOptions options = at::TensorOptions(device).dtype(dtype);
  const at::Tensor patches = at::randn({batch, places, width}, options),
                   tokens = at::randn({batch, words, width}, options);
  const at::Tensor patch_keep = at::ones({batch, places}, options.dtype(at::kBool)),
                   token_keep = at::ones({batch, words}, options.dtype(at::kBool));
  const double pairs = static_cast<double>(batch * batch);
  // Every pair has two similarities, and a 16-bit position for each patch and each token.
  const double between = pairs * static_cast<double>(2 * sizeof(float) + sizeof(std::int16_t) * (places + words));
  const double tokens_bytes = bytes_of(patches) + bytes_of(tokens);
  return both_passes({"max_similarity",
                      concat("B=", batch, " L=", words, " P=", places, " D=", width),
                      {patches, tokens},
                      [=](const Tensors& x) {
                        const auto [i2t, t2i] = max_similarity(x[0], x[1], patch_keep, token_keep, std::nullopt);
                        return Tensors{i2t, t2i};
                      },
                      [](const Tensors& x) {
                        const auto [i2t, t2i] = composed_max_similarity(x[0], x[1]);
                        return Tensors{i2t, t2i};
                      },
                      {2.0 * pairs * static_cast<double>(places * words * width), tokens_bytes + between},
                      {0, 2 * tokens_bytes + between}});
}

std::vector<KernelCase> adamw_cases(const UpdateShape& shape, const at::Device& device) {
  struct Clipped {
    Clipped(const UpdateShape& sizes, const at::Device& where, bool by_operators) {
      std::vector<NamedParameter> parameters;
      for (std::int64_t i = 0; i < sizes.tensors; ++i) {
        parameters.push_back({concat("p", i), at::randn({1, sizes.elements}, at::TensorOptions(where)).requires_grad_()});
        parameters.back().tensor.mutable_grad() = at::randn_like(parameters.back().tensor);
      }
      optimizer = std::make_unique<AdamW>(parameters, AdamWSettings{});
      if (by_operators) optimizer->use_kernel(nullptr);
      const WeightCopies::Scope scope(optimizer->weight_copies());
      for (const NamedParameter& each : parameters) WeightCopies::cast(each.tensor);
      norm = at::full({}, 2.0, at::TensorOptions(where));
    }
    void step() const {
      const at::Tensor factor = clip_factor(norm, 1.0);
      if (optimizer->applies_factor()) return optimizer->step({1e-6, {}, {}, factor, {}});
      std::vector<at::Tensor> gradients;
      for (const NamedParameter& each : optimizer->parameters()) gradients.push_back(each.tensor.grad());
      at::_foreach_mul_(gradients, factor);
      optimizer->step(1e-6);
    }
    std::unique_ptr<AdamW> optimizer;
    at::Tensor norm;
  };
  const auto fused = std::make_shared<Clipped>(shape, device, false), composed = std::make_shared<Clipped>(shape, device, true);
  const std::function<void()> run = [fused] { fused->step(); }, beside = [composed] { composed->step(); };
  // Reads the gradient, and reads and writes the parameter and two moments; the kernel also writes a copy of two bytes.
  const double bytes = (fused->optimizer->applies_factor() ? 30.0 : 28.0) * static_cast<double>(shape.tensors * shape.elements);
  return {{"adamw", "update", concat("T=", shape.tensors, " N=", shape.elements), at::kFloat, 0, bytes, run, beside, run, beside}};
}

}  // namespace tessera::bench
