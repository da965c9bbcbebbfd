#include <cmath>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/region_tokens.h"

namespace tessera {

RegionTokens::RegionTokens(const RegionSettings& settings, std::int64_t width, bool class_token,
                           const at::Tensor& of_images, torch::nn::Module& encoder)
    : settings_(settings), class_token_(class_token) {
  roi_proj_ = encoder.register_module(
      "roi_proj", torch::nn::Linear(torch::nn::LinearOptions(settings.width, width).bias(settings.bias)));
  if (!class_token || settings.class_token == "mean") return;
  class_embedding_ = of_images;
  if (settings.class_token == "learned")
    class_embedding_ =
        encoder.register_parameter("roi_class_embedding", at::randn({width}) / std::sqrt(static_cast<double>(width)));
}

// Returns the class token [B, 1, w] of each row.
at::Tensor RegionTokens::class_tokens(const at::Tensor& tokens, const at::Tensor& mask) const {
  if (class_embedding_.defined()) return class_embedding_.expand({tokens.size(0), 1, -1}).to(tokens.scalar_type());
  if (!mask.defined()) return tokens.mean(1, /*keepdim=*/true);
  return zero_padding(tokens, mask).sum(1, /*keepdim=*/true) / mask.sum(1).clamp_min(1).view({-1, 1, 1});
}

RegionTokens::Sequence RegionTokens::forward(const at::Tensor& regions, const at::Tensor& mask, LayerNorm* ln_pre) {
  TORCH_CHECK(regions.dim() == 3 && regions.size(2) == settings_.width, "regions must be [B, R, ", settings_.width,
              "], got ", regions.sizes());
  Sequence out{roi_proj_(zero_padding(regions, mask)), mask};  // the padding may be NaN
  if (class_token_) {
    out.tokens = at::cat({class_tokens(out.tokens, mask), out.tokens}, 1);
    if (mask.defined()) out.mask = at::cat({at::ones({mask.size(0), 1}, mask.options()), mask}, 1);
  }
  if (ln_pre != nullptr && settings_.pre_norm) out.tokens = ln_pre->forward(out.tokens);
  return out;
}

}  // namespace tessera
