#pragma once

#include <string>

#include <torch/nn/modules/linear.h>

#include <tessera/models/registry.h>

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

/// `linear`: computes x @ proj, without bias (CLIP) or with a bias (SigLIP's texts). The parameters are named `visual.proj`,
/// `text_projection`, `proj_bias` and `text_projection_bias`. Tokens use the same matrix.
class LinearProjection : public Projection {
 public:
  LinearProjection(const LinearProjectionSettings& settings, const ProjectionContext& context);
  at::Tensor global(const at::Tensor& pooled) override;
  at::Tensor tokens(const at::Tensor& tokens) override;
  at::Tensor dense(const at::Tensor& tokens) override { return this->tokens(tokens); }
  std::int64_t embed_dim() const override { return proj_.size(1); }

 private:
  at::Tensor project(const at::Tensor& x) const;

  at::Tensor proj_, bias_;
  std::int64_t token_width_;
  std::string path_;
};

/// `none`: the embedding is the read-out's vector itself.
class NoProjection : public Projection {
 public:
  explicit NoProjection(const ProjectionContext& context) : width_(context.pooled_width) {}
  at::Tensor global(const at::Tensor& pooled) override { return pooled; }
  at::Tensor tokens(const at::Tensor& tokens) override { return tokens; }
  at::Tensor dense(const at::Tensor& tokens) override { return tokens; }
  std::int64_t embed_dim() const override { return width_; }

 private:
  std::int64_t width_;
};

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

/// `adaptor`: SPARC's head (Bica et al. 2024): tokens = g(f), global = g(h(pooled)) and dense = g(h(f)), where f are the encoder's tokens,
/// g is linear and h is non-linear. The text tower has no h.
class Adaptor : public Projection {
 public:
  Adaptor(const AdaptorSettings& settings, const ProjectionContext& context);
  at::Tensor global(const at::Tensor& pooled) override { return adaptor_(head(pooled)); }
  at::Tensor tokens(const at::Tensor& tokens) override { return adaptor_(tokens); }
  at::Tensor dense(const at::Tensor& tokens) override { return adaptor_(head(tokens)); }
  std::int64_t embed_dim() const override { return adaptor_->options.out_features(); }

 private:
  at::Tensor head(const at::Tensor& x);

  torch::nn::Linear adaptor_;
  torch::nn::Linear global_head_{nullptr};
};

}  // namespace tessera
