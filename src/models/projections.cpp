#include <cmath>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "src/models/add_module.h"
#include "src/models/mlp_head.h"
#include "src/ops/packed_weights.h"

namespace tessera {

struct LinearProjectionSettings {
  std::int64_t embed_dim = 512;
  bool bias = false;
};

template <class Visitor>
void fields(Visitor& v, LinearProjectionSettings& s) {
  v("embed_dim", s.embed_dim, "width of the space that both towers share", config::at_least(1));
  v("bias", s.bias, "whether the projection adds a bias (SigLIP's texts)");
}

struct AdaptorSettings {
  std::int64_t embed_dim = 512;
  bool bias = true;
  std::string global_head = "nonlinear";
};

template <class Visitor>
void fields(Visitor& v, AdaptorSettings& s) {
  v("embed_dim", s.embed_dim, "width of the space that both towers share", config::at_least(1));
  v("bias", s.bias, "whether the adaptor g has a bias");
  v("global_head", s.global_head,
    "the map h that images have before g: nonlinear: GELU of a linear map; mean: the identity",
    config::one_of({"nonlinear", "mean"}));
}

struct MlpProjectionSettings : MlpHeadSettings {
  MlpProjectionSettings() { num_layers = 2; }
  std::int64_t embed_dim = 256;
};

template <class Visitor>
void fields(Visitor& v, MlpProjectionSettings& s) {
  v("embed_dim", s.embed_dim, "width of the space that both towers share", config::at_least(1));
  fields(v, static_cast<MlpHeadSettings&>(s));
  v("norm", s.norm, "norm after the first of two layers: batch (GroupViT) or none (OpenCLIP)", config::one_of({"batch", "none"}));
  v("activation", s.activation, "activation after that norm", config::one_of({"gelu", "gelu_tanh", "quick_gelu", "silu", "relu"}));
  v("hidden_bias", s.hidden_bias, "whether the first of two layers adds a bias");
  v("bias", s.bias, "whether the last layer adds a bias");
}

namespace {

/// `linear`: computes x @ proj, without bias (CLIP) or with a bias (SigLIP's texts). The parameters are named `visual.proj`,
/// `text_projection`, `proj_bias` and `text_projection_bias`. Tokens use the same matrix.
class LinearProjection : public Projection {
 public:
  LinearProjection(const LinearProjectionSettings& settings, const ProjectionContext& context)
      : token_width_(context.token_width), path_(context.path) {
    const char* name = context.modality == Modality::image ? "proj" : "text_projection";
    const double deviation = 1.0 / std::sqrt(static_cast<double>(context.pooled_width));
    proj_ = register_parameter(name, deviation * at::randn({context.pooled_width, settings.embed_dim}));
    if (settings.bias) bias_ = register_parameter(concat(name, "_bias"), at::zeros({settings.embed_dim}));
  }

  at::Tensor global(const at::Tensor& x) override {
    if (const at::Tensor packed = PackedWeights::map(x, proj_.t(), bias_); packed.defined()) return packed;
    return bias_.defined() ? at::linear(x, proj_.t(), bias_) : at::matmul(x, proj_);
  }
  at::Tensor tokens(const at::Tensor& tokens) override {
    if (token_width_ != proj_.size(0))
      user_error(path_, ": linear projects the read-out's vector of width ", proj_.size(0),
                 ", but token features are needed and tokens are ", token_width_,
                 " wide: use a read-out that keeps the width (gap, max, cls, eos)");
    return global(tokens);
  }
  at::Tensor dense(const at::Tensor& tokens) override { return this->tokens(tokens); }
  std::int64_t embed_dim() const override { return proj_.size(1); }

 private:
  at::Tensor proj_, bias_;
  std::int64_t token_width_;
  std::string path_;
};

/// `none`: the embedding is the read-out's vector itself.
class NoProjection : public Projection {
 public:
  NoProjection(const config::NoSettings&, const ProjectionContext& context) : width_(context.pooled_width) {}
  at::Tensor global(const at::Tensor& pooled) override { return pooled; }
  std::int64_t embed_dim() const override { return width_; }

 private:
  std::int64_t width_;
};

/// `adaptor`: SPARC's head (Bica et al. 2024): tokens = g(f), global = g(h(pooled)) and dense = g(h(f)), where f are the encoder's tokens,
/// g is linear and h is non-linear. The text tower has no h.
class Adaptor : public Projection {
 public:
  Adaptor(const AdaptorSettings& settings, const ProjectionContext& context)
      : adaptor_(torch::nn::LinearOptions(context.token_width, settings.embed_dim).bias(settings.bias)) {
    if (context.pooled_width != context.token_width)
      user_error(context.path, ": adaptor shares one map between tokens and read-out, but tokens are ",
                 context.token_width, " wide and the read-out's vector is ", context.pooled_width,
                 ": use gap, or projection linear");
    register_module("adaptor", adaptor_);
    if (context.modality == Modality::image && settings.global_head == "nonlinear")
      global_head_ = register_module("global_head", torch::nn::Linear(context.token_width, context.token_width));
  }

  at::Tensor global(const at::Tensor& pooled) override {
    return adaptor_(global_head_.is_empty() ? pooled : at::gelu(global_head_(pooled)));
  }
  at::Tensor tokens(const at::Tensor& tokens) override { return adaptor_(tokens); }
  std::int64_t embed_dim() const override { return adaptor_->options.out_features(); }

 private:
  torch::nn::Linear adaptor_;
  torch::nn::Linear global_head_{nullptr};
};

/// `mlp`: an MlpHead on the pooled vector, as in GroupViT and OpenCLIP. In files, the names of its parameters start with `head.`.
/// Token-level losses receive the encoder's tokens unchanged.
class MlpProjection : public Projection {
 public:
  MlpProjection(const MlpProjectionSettings& settings, const ProjectionContext& context)
      : embed_dim_(settings.embed_dim),
        head_(register_module("head", std::make_shared<MlpHead>(settings, context.pooled_width, settings.embed_dim))) {}
  at::Tensor global(const at::Tensor& pooled) override { return head_->forward(pooled); }
  std::int64_t embed_dim() const override { return embed_dim_; }

 private:
  std::int64_t embed_dim_;
  std::shared_ptr<MlpHead> head_;
};

template <class Module, class Settings>
void add_projection(ProjectionRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help, [](const Settings& s, const ProjectionContext& context) { return std::make_shared<Module>(s, context); });
}

}  // namespace

ProjectionRegistry& projections() {
  static ProjectionRegistry registry = [] {
    ProjectionRegistry list("projection");
    add_projection<LinearProjection, LinearProjectionSettings>(list, "linear", "one matrix (CLIP), with or without bias");
    add_projection<Adaptor, AdaptorSettings>(list, "adaptor", "SPARC's head");
    add_projection<MlpProjection, MlpProjectionSettings>(list, "mlp", "GroupViT's head");
    add_projection<NoProjection, config::NoSettings>(list, "none", "the read-out's vector is the embedding");
    return list;
  }();
  return registry;
}

}  // namespace tessera
