#include "src/models/readouts/pooling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "src/models/add_module.h"
#include "src/models/attention.h"
#include <tessera/base/error.h>

namespace tessera {

/// Settings of all read-outs that select or average token vectors. They have an optional projection `proj` [width, output_dim].
struct PoolingSettings {
  std::int64_t output_dim = 0;
};

template <class Visitor>
void fields(Visitor& v, PoolingSettings& s) {
  v("output_dim", s.output_dim, "width of a projection without bias after pooling; 0: none", config::at_least(0));
}

struct EosSettings : PoolingSettings {
  std::string position = "mask";
  std::optional<std::int64_t> eos_id;
};

template <class Visitor>
void fields(Visitor& v, EosSettings& s) {
  fields(v, static_cast<PoolingSettings&>(s));
  v("position", s.position,
    "mask: the last real token; ids: the first position of the largest id (OpenCLIP); without a mask always ids",
    config::one_of({"mask", "ids"}));
  v("eos_id", s.eos_id, "use the first position of this id instead (position 0 if there is none)", config::at_least(0));
}

struct PositionsSettings : PoolingSettings {
  std::int64_t skip_prefix = 0;
};

template <class Visitor>
void fields(Visitor& v, PositionsSettings& s) {
  fields(v, static_cast<PoolingSettings&>(s));
  v("skip_prefix", s.skip_prefix, "number of leading tokens left out; a class token counts as one and is always left out",
    config::at_least(0));
}

struct LinearBottleneckSettings {
  std::string pool = "cls";
  std::int64_t bottleneck_dim = 512;
  std::int64_t output_dim = 4096;
  std::int64_t skip_prefix = 0;
  std::string position = "mask";
};

template <class Visitor>
void fields(Visitor& v, LinearBottleneckSettings& s) {
  v("pool", s.pool, "the read-out that pools the tokens into one vector", config::one_of({"cls", "eos", "gap", "max"}));
  v("bottleneck_dim", s.bottleneck_dim, "width of the bottleneck", config::at_least(1));
  v("output_dim", s.output_dim, "width of the result (paper: 64 -> 512 and 512 -> 4096)", config::at_least(1));
  v("skip_prefix", s.skip_prefix, "for pool gap or max: that read-out's skip_prefix", config::at_least(0));
  v("position", s.position, "for pool eos: that read-out's position", config::one_of({"mask", "ids"}));
}

Positions skip_positions(const Encoded& encoded, std::int64_t skip) {
  if (skip >= encoded.tokens.size(1))
    user_error("model: a read-out's skip_prefix leaves out ", skip, " tokens, but there are only ", encoded.tokens.size(1),
               ": make it smaller");
  const at::Tensor mask = encoded.mask.defined() ? encoded.mask.slice(1, skip) : encoded.mask;
  return {at_least_float(encoded.tokens.slice(1, skip)), mask};
}

std::int64_t tokens_to_skip(std::int64_t skip_prefix, const ReadOutContext& context) {
  const std::int64_t skip = skip_prefix - (context.class_token ? 1 : 0);
  if (context.tokens > 0 && skip >= context.tokens)
    user_error(context.path, ".skip_prefix: ", skip_prefix, " leaves nothing of ", context.tokens, " tokens");
  return std::max<std::int64_t>(0, skip);
}

namespace {

at::Tensor random_projection(std::int64_t width, std::int64_t output_dim) {
  return at::randn({width, output_dim}) / std::sqrt(static_cast<double>(width));
}

/// A read-out that selects or averages token vectors.
class PoolingReadOut : public ReadOut {
 public:
  /// Returns [B, width], 0 for rows without a real token.
  using Pool = std::function<at::Tensor(const Encoded&)>;

  /// `width` is the width of the pooled vectors. If output_dim is above 0, a projection to this width follows.
  PoolingReadOut(Pool pool, std::int64_t width, std::int64_t output_dim = 0, bool reads_tokens = true)
      : pool_(std::move(pool)), output_width_(output_dim > 0 ? output_dim : width), reads_tokens_(reads_tokens) {
    if (output_dim > 0) proj_ = register_parameter("proj", random_projection(width, output_dim));
  }

  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& /*needs*/) override {
    const at::Tensor pooled = pool_(encoded);
    return {proj_.defined() ? at::matmul(pooled, proj_) : pooled, {}, {}};
  }
  std::int64_t output_width() const override { return output_width_; }
  bool reads_tokens() const override { return reads_tokens_; }

 private:
  Pool pool_;
  std::int64_t output_width_;
  bool reads_tokens_;
  at::Tensor proj_;
};

using MadeReadOut = std::shared_ptr<ReadOut>;

/// Returns each row's token [B, w] at position `index` [B] of the tokens [B, N, w], or 0 if that position is padding.
at::Tensor token_at(const Encoded& encoded, const at::Tensor& index) {
  const at::Tensor place = index.view({-1, 1, 1}).expand({-1, 1, encoded.tokens.size(2)});
  const at::Tensor token = encoded.tokens.gather(1, place);  // [B, 1, w]
  if (!encoded.mask.defined()) return token.squeeze(1);
  return zero_padding(token, encoded.mask.gather(1, index.unsqueeze(1))).squeeze(1);
}

/// Returns the class token, or position 0 if the encoder has no separate one.
at::Tensor first_token(const Encoded& encoded) {
  if (encoded.class_token.defined()) return encoded.class_token;
  return token_at(encoded, at::zeros({encoded.tokens.size(0)}, encoded.tokens.options().dtype(at::kLong)));
}

MadeReadOut make_cls(const PoolingSettings& settings, const ReadOutContext& context) {
  if (context.modality == Modality::image && !context.class_token)
    user_error(context.path, ": cls needs a class token, which this encoder does not have: set encoder.class_token: true, or use gap");
  return std::make_shared<PoolingReadOut>(first_token, context.width, settings.output_dim, /*reads_tokens=*/false);
}

/// Returns the position [B] of each text's end token.
at::Tensor find_end(const Encoded& encoded, const EosSettings& settings) {
  const at::Tensor& mask = encoded.mask;
  if (settings.eos_id || settings.position == "ids" || !mask.defined()) {
    if (!encoded.ids.defined())
      user_error("model: readout eos: the encoder returns no token ids to find the end token in: choose another pool, such as gap");
    if (settings.eos_id) {
      at::Tensor found = encoded.ids.eq(*settings.eos_id);
      if (mask.defined()) found = found & mask;
      return found.to(at::kByte).argmax(1);
    }
    return mask.defined()
               ? encoded.ids.masked_fill(mask.logical_not(), std::numeric_limits<std::int64_t>::min()).argmax(1)
               : encoded.ids.argmax(1);
  }
  const at::Tensor places = at::arange(mask.size(1), mask.options().dtype(at::kLong));
  return places.masked_fill(mask.logical_not(), 0).amax(1);
}

MadeReadOut make_eos(const EosSettings& settings, const ReadOutContext& context) {
  if (context.modality == Modality::image)
    user_error(context.path, ": eos is a read-out for text towers; images have no end token: use cls, gap or max");
  const auto pool = [settings](const Encoded& encoded) { return token_at(encoded, find_end(encoded, settings)); };
  return std::make_shared<PoolingReadOut>(pool, context.width, settings.output_dim);
}

/// Returns the mean [B, w] of the real tokens [B, N, w]. mask is [B, N] or undefined. The mean is 0 in rows without a real token.
at::Tensor mean_of_real(const at::Tensor& tokens, const at::Tensor& mask) {
  if (!mask.defined()) return tokens.mean(1);
  return zero_padding(tokens, mask).sum(1) / mask.sum(1, /*keepdim=*/true).clamp_min(1);
}

/// Does the same for the maximum. Ties share the gradient evenly.
at::Tensor max_of_real(const at::Tensor& tokens, const at::Tensor& mask) {
  if (!mask.defined()) return tokens.amax(1);
  const at::Tensor lowest = at::full({}, -std::numeric_limits<double>::infinity(), tokens.options());
  const at::Tensor largest = at::where(mask.unsqueeze(-1), tokens, lowest).amax(1);
  return at::where(mask.any(1, /*keepdim=*/true), largest, at::zeros({}, tokens.options()));
}

/// Makes the read-out that applies `pool` to the tokens after the skipped ones and to their mask.
template <at::Tensor (*pool)(const at::Tensor&, const at::Tensor&)>
MadeReadOut make_over_tokens(const PositionsSettings& settings, const ReadOutContext& context) {
  const auto pooled = [skip = tokens_to_skip(settings.skip_prefix, context)](const Encoded& encoded) {
    const auto [tokens, mask] = skip_positions(encoded, skip);
    return pool(tokens, mask);
  };
  return std::make_shared<PoolingReadOut>(pooled, context.width, settings.output_dim);
}

MadeReadOut make_cls_mean(const config::NoSettings&, const ReadOutContext& context) {
  if (!context.class_token) user_error(context.path, ": cls_mean needs a class token, which this encoder does not have: use gap");
  const auto pool = [](const Encoded& encoded) {
    const at::Tensor mean = mean_of_real(encoded.tokens, encoded.mask);
    return at::cat({encoded.class_token.to(mean.scalar_type()), mean}, 1);
  };
  return std::make_shared<PoolingReadOut>(pool, 2 * context.width);
}

/// `linear_bottleneck`: pools the tokens and projects the result to a smaller width without bias (`proj`), then to the embedding with bias
/// (`bottleproj`). This is the linear baseline in SPARO's Table 0.B.1.
class LinearBottleneck : public ReadOut {
 public:
  LinearBottleneck(const LinearBottleneckSettings& s, const ReadOutContext& context)
      : pool_(register_module("pool", make_pool(s, context))), bottleproj_(s.bottleneck_dim, s.output_dim) {
    proj_ = register_parameter("proj", random_projection(context.width, s.bottleneck_dim));
    register_module("bottleproj", bottleproj_);
  }
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override {
    return {bottleproj_(at::matmul(pool_->forward(encoded, needs).embedding, proj_)), {}, {}};
  }
  std::int64_t output_width() const override { return bottleproj_->options.out_features(); }

 private:
  static MadeReadOut make_pool(const LinearBottleneckSettings& s, const ReadOutContext& context) {
    if (s.pool == "cls") return make_cls({}, context);
    if (s.pool == "eos") return make_eos({{}, s.position, std::nullopt}, context);
    return (s.pool == "gap" ? make_over_tokens<mean_of_real> : make_over_tokens<max_of_real>)({{}, s.skip_prefix}, context);
  }

  MadeReadOut pool_;
  at::Tensor proj_;
  torch::nn::Linear bottleproj_;
};

}  // namespace

void add_poolings(ReadOutRegistry& list) {
  list.add<PoolingSettings>("cls", "the class token (texts: position 0)", make_cls);
  list.add<EosSettings>("eos", "the end-of-text token", make_eos);
  list.add<PositionsSettings>("gap", "the mean over patches or real tokens", make_over_tokens<mean_of_real>);
  list.add<PositionsSettings>("max", "the maximum over patches or real tokens", make_over_tokens<max_of_real>);
  // In DINOv2's linear probes and in dino.txt (Jose et al. 2025), the vector is twice as wide as the tokens.
  list.add<config::NoSettings>("cls_mean", "the class token concatenated with the mean over patches", make_cls_mean);
}

void add_linear_bottleneck(ReadOutRegistry& list) {
  add_readout<LinearBottleneck, LinearBottleneckSettings>(list, "linear_bottleneck", "a pooled vector through a narrow linear map");
}

void add_none(ReadOutRegistry& list) {
  list.add<config::NoSettings>("none", "no vector; for objectives that read the tokens",
                               [](const config::NoSettings&, const ReadOutContext& context) {
                                 const auto nothing = [](const Encoded&) { return at::Tensor(); };
                                 return std::make_shared<PoolingReadOut>(nothing, context.width, 0, /*reads_tokens=*/false);
                               });
}

}  // namespace tessera
