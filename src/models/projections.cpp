#include <cmath>

#include <ATen/ATen.h>

#include "src/models/projections.h"

namespace tessera {

LinearProjection::LinearProjection(const LinearProjectionSettings& settings, const ProjectionContext& context)
    : token_width_(context.token_width), path_(context.path) {
  const char* name = context.modality == Modality::image ? "proj" : "text_projection";
  const double deviation = 1.0 / std::sqrt(static_cast<double>(context.pooled_width));
  proj_ = register_parameter(name, deviation * at::randn({context.pooled_width, settings.embed_dim}));
  if (settings.bias) bias_ = register_parameter(concat(name, "_bias"), at::zeros({settings.embed_dim}));
}

at::Tensor LinearProjection::project(const at::Tensor& x) const {
  return bias_.defined() ? at::linear(x, proj_.t(), bias_) : at::matmul(x, proj_);
}

at::Tensor LinearProjection::global(const at::Tensor& pooled) {
  return project(pooled);
}

at::Tensor LinearProjection::tokens(const at::Tensor& tokens) {
  if (token_width_ != proj_.size(0))
    user_error(path_, ": linear projects the read-out's vector of width ", proj_.size(0),
               ", but token features are needed and tokens are ", token_width_,
               " wide: use a read-out that keeps the width (gap, max, cls, eos)");
  return project(tokens);
}

Adaptor::Adaptor(const AdaptorSettings& settings, const ProjectionContext& context)
    : adaptor_(torch::nn::LinearOptions(context.token_width, settings.embed_dim).bias(settings.bias)) {
  if (context.pooled_width != context.token_width)
    user_error(context.path, ": adaptor shares one map between tokens and read-out, but tokens are ",
               context.token_width, " wide and the read-out's vector is ", context.pooled_width,
               ": use gap, or projection linear");
  register_module("adaptor", adaptor_);
  if (context.modality == Modality::image && settings.global_head == "nonlinear")
    global_head_ = register_module("global_head", torch::nn::Linear(context.token_width, context.token_width));
}

at::Tensor Adaptor::head(const at::Tensor& x) {
  return global_head_.is_empty() ? x : at::gelu(global_head_(x));
}

}  // namespace tessera
