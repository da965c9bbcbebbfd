#include <algorithm>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "src/models/attention.h"
#include "src/models/batch_norm.h"
#include "src/models/layers.h"
#include "src/ops/packed_weights.h"
#include <tessera/ops/numeric.h>

namespace tessera {

at::Tensor linear(torch::nn::Linear& layer, const at::Tensor& x) {
  // at::linear() adds the bias inside the product, so it can round differently from layer(x). The CPU keeps layer(x), with which all
  // published results were measured.
  if (x.is_cuda()) return at::linear(x, layer->weight, layer->bias);
  const at::Tensor packed = PackedWeights::map(x, layer->weight, layer->bias);
  return packed.defined() ? packed : layer(x);
}

namespace {

thread_local RealRows* innermost = nullptr;

// Normalizes x [R, C] or [R, C, H, W] in training with the mean and variance over the rows that `real` [R] marks.
template <class Norm>
at::Tensor norm_over(const at::Tensor& real, Norm& norm, const at::Tensor& x) {
  std::vector<std::int64_t> of_rows(static_cast<std::size_t>(x.dim()), 1), of_channels = of_rows, others = {0};
  of_rows[0] = x.size(0);
  of_channels[1] = x.size(1);
  for (std::int64_t i = 2; i < x.dim(); ++i) others.push_back(i);
  const at::Tensor there = real.view(of_rows), values = at_least_float(x);
  const auto sum = [&](const at::Tensor& y) { return at::where(there, y, 0).sum(others, /*keepdim=*/true); };
  const at::Tensor rows = real.sum().to(values.scalar_type()), count = (rows * c10::multiply_integers(x.sizes().slice(2))).clamp_min(1);
  const at::Tensor centered = at::where(there, values - sum(values) / count, 0), variance = sum(centered.square()) / count;
  {
    const at::NoGradGuard no_grad;
    const auto stored = [&](const at::Tensor& y) { return y.flatten().to(norm->running_mean.scalar_type()); };
    const at::Tensor weight = stored((rows > 0) * *norm->options.momentum()).squeeze(0);  // without a row, the statistics stay
    norm->running_mean.lerp_(stored(sum(values) / count), weight);
    norm->running_var.lerp_(stored(variance * count / (count - 1).clamp_min(1)), weight);
    norm->num_batches_tracked.add_(1);
  }
  const at::Tensor unit = centered * (variance + norm->options.eps()).rsqrt();
  return (unit * norm->weight.view(of_channels) + norm->bias.view(of_channels)).to(x.scalar_type());
}

template <class Norm>
at::Tensor normed(Norm& norm, const at::Tensor& x, const at::Tensor& real) {
  if (!norm->weight.requires_grad())
    return at::batch_norm(x, norm->weight, norm->bias, norm->running_mean, norm->running_var, /*training=*/false,
                          /*momentum=*/0.0, norm->options.eps(), at::globalContext().userEnabledCuDNN());
  return real.defined() && norm->is_training() ? norm_over(real, norm, x) : norm(x);
}

bool mixes(const torch::nn::Module& module) {
  return (module.as<torch::nn::BatchNorm1d>() != nullptr || module.as<torch::nn::BatchNorm2d>() != nullptr) && module.is_training();
}

}  // namespace

RealRows::RealRows(at::Tensor mask) : mask_(std::move(mask)), outer_(innermost) {
  innermost = this;
}

RealRows::~RealRows() {
  innermost = outer_;
}

at::Tensor RealRows::now() {
  return innermost == nullptr ? at::Tensor() : innermost->mask_;
}

template <class Norm>
at::Tensor batch_norm(Norm& norm, const at::Tensor& x) {
  return normed(norm, x, RealRows::now());
}
template at::Tensor batch_norm(torch::nn::BatchNorm2d&, const at::Tensor&);

template <>
at::Tensor batch_norm(torch::nn::BatchNorm1d& norm, const at::Tensor& x) {
  at::Tensor real = RealRows::now();
  const at::IntArrayRef rows = x.sizes().slice(0, static_cast<std::size_t>(x.dim() - 1));
  if (real.defined()) {
    while (real.dim() < x.dim() - 1) real = real.unsqueeze(-1);  // all parts of a missing row are missing
    real = real.expand(rows).flatten();
  }
  return normed(norm, x.flatten(0, -2), real).view(x.sizes());
}

bool mixes_rows(const torch::nn::Module& module) {
  return std::ranges::any_of(module.modules(), [](const auto& each) { return mixes(*each); });
}

LayerNorm::LayerNorm(std::int64_t width, double eps, const std::string& kind)
    : weight_(register_parameter("weight", at::ones({width}))), eps_(eps), centers_(kind != "rms") {
  if (kind == "layer") bias_ = register_parameter("bias", at::zeros({width}));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  const at::Tensor wide = at_least_float(x), weight = at_least_float(weight_);
  if (!centers_) return at::rms_norm(wide, weight.sizes(), weight, eps_);
  return at::layer_norm(wide, weight.sizes(), weight, has_bias() ? at_least_float(bias_) : bias_, eps_);
}

at::Tensor LayerNorm::forward(const ResidualStream& stream) {
  if (!has_bias()) return forward(residual_sum(stream)).to(compute_dtype(stream.x));
  return residual_norm(stream, norm_parameters(), compute_dtype(stream.x));
}

LayerScale::LayerScale(std::int64_t width, double start)
    : gamma_(register_parameter("gamma", at::full({width}, start))) {}

}  // namespace tessera
