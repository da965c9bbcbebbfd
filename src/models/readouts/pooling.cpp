#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/readouts/pooling.h"
#include "src/models/readouts/positions.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

/// Returns each row's token [B, w] at position `index` [B] of the tokens [B, N, w], or 0 if that position is padding.
at::Tensor token_at(const Encoded& encoded, const at::Tensor& index) {
  const at::Tensor place = index.view({-1, 1, 1}).expand({-1, 1, encoded.tokens.size(2)});
  const at::Tensor token = encoded.tokens.gather(1, place);  // [B, 1, w]
  if (!encoded.mask.defined()) return token.squeeze(1);
  return zero_padding(token, encoded.mask.gather(1, index.unsqueeze(1))).squeeze(1);
}

// Returns the mean [B, w] of the real tokens [B, N, w]. mask is [B, N] or undefined. The mean is 0 in rows without a
// real token.
at::Tensor mean_of_real(const at::Tensor& tokens, const at::Tensor& mask) {
  if (!mask.defined()) return tokens.mean(1);
  return zero_padding(tokens, mask).sum(1) / mask.sum(1, /*keepdim=*/true).clamp_min(1);
}

}  // namespace

PoolingReadOut::PoolingReadOut(const PoolingSettings& settings, const ReadOutContext& context)
    : output_width_(settings.output_dim > 0 ? settings.output_dim : context.width) {
  if (settings.output_dim > 0)
    proj_ = register_parameter(
        "proj", at::randn({context.width, output_width_}) / std::sqrt(static_cast<double>(context.width)));
}

ReadOutOutput PoolingReadOut::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  at::Tensor pooled = pool(encoded);
  if (proj_.defined()) pooled = at::matmul(pooled, proj_);
  return {pooled, {}, {}};
}

ClsReadOut::ClsReadOut(const PoolingSettings& settings, const ReadOutContext& context)
    : PoolingReadOut(settings, context) {
  if (context.modality == Modality::image && !context.class_token)
    user_error(
        context.path,
        ": cls needs a class token, which this encoder does not have: set encoder.class_token: true, or use gap");
}

at::Tensor ClsReadOut::pool(const Encoded& encoded) const {
  if (encoded.class_token.defined()) return encoded.class_token;
  return token_at(encoded, at::zeros({encoded.tokens.size(0)}, encoded.tokens.options().dtype(at::kLong)));
}

EosReadOut::EosReadOut(const EosSettings& settings, const ReadOutContext& context)
    : PoolingReadOut(settings, context), settings_(settings) {
  if (context.modality == Modality::image)
    user_error(context.path, ": eos is a read-out for text towers; images have no end token: use cls, gap or max");
}

at::Tensor EosReadOut::pool(const Encoded& encoded) const {
  return token_at(encoded, find(encoded));
}

at::Tensor EosReadOut::find(const Encoded& encoded) const {
  const at::Tensor& mask = encoded.mask;
  if (settings_.eos_id || settings_.position == "ids" || !mask.defined()) {
    if (!encoded.ids.defined())
      user_error("model: readout eos: the encoder returns no token ids to find the end token in: choose another pool, such as gap");
    if (settings_.eos_id) {
      at::Tensor found = encoded.ids.eq(*settings_.eos_id);
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

GapReadOut::GapReadOut(const PositionsSettings& settings, const ReadOutContext& context)
    : PoolingReadOut(settings, context), skip_(tokens_to_skip(settings.skip_prefix, context)) {}

at::Tensor GapReadOut::pool(const Encoded& encoded) const {
  const auto [tokens, mask] = skip_positions(encoded, skip_);
  return mean_of_real(tokens, mask);
}

ClsMeanReadOut::ClsMeanReadOut(const config::NoSettings& /*settings*/, const ReadOutContext& context)
    : width_(context.width) {
  if (!context.class_token)
    user_error(context.path, ": cls_mean needs a class token, which this encoder does not have: use gap");
}

ReadOutOutput ClsMeanReadOut::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  const at::Tensor mean = mean_of_real(encoded.tokens, encoded.mask);
  return {at::cat({encoded.class_token.to(mean.scalar_type()), mean}, 1), {}, {}};
}

MaxReadOut::MaxReadOut(const PositionsSettings& settings, const ReadOutContext& context)
    : PoolingReadOut(settings, context), skip_(tokens_to_skip(settings.skip_prefix, context)) {}

at::Tensor MaxReadOut::pool(const Encoded& encoded) const {
  const auto [tokens, mask] = skip_positions(encoded, skip_);
  if (!mask.defined()) return tokens.amax(1);
  const at::Tensor lowest = at::full({}, -std::numeric_limits<double>::infinity(), tokens.options());
  const at::Tensor largest = at::where(mask.unsqueeze(-1), tokens, lowest).amax(1);
  return at::where(mask.any(1, /*keepdim=*/true), largest, at::zeros({}, tokens.options()));
}

}  // namespace tessera
