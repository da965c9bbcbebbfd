#pragma once

#include <memory>
#include <string>

#include <torch/nn/modules/linear.h>

#include "src/models/readouts/pooling.h"

namespace tessera {

struct LinearBottleneckSettings {
  std::string pool = "cls";
  std::int64_t bottleneck_dim = 512;
  std::int64_t output_dim = 4096;
  std::int64_t skip_prefix = 0;
  std::string position = "mask";
};

template <class Visitor>
void fields(Visitor& v, LinearBottleneckSettings& s) {
  v("pool", s.pool, "the read-out that pools the tokens into one vector",
    config::one_of({"cls", "eos", "gap", "max"}));
  v("bottleneck_dim", s.bottleneck_dim, "width of the bottleneck", config::at_least(1));
  v("output_dim", s.output_dim, "width of the result (paper: 64 -> 512 and 512 -> 4096)", config::at_least(1));
  v("skip_prefix", s.skip_prefix, "for pool gap or max: that read-out's skip_prefix", config::at_least(0));
  v("position", s.position, "for pool eos: that read-out's position", config::one_of({"mask", "ids"}));
}

/// `linear_bottleneck`: pools the tokens and projects the result to a smaller width without bias (`proj`), then to the embedding with bias
/// (`bottleproj`). This is the linear baseline in SPARO's Table 0.B.1.
class LinearBottleneck : public ReadOut {
 public:
  LinearBottleneck(const LinearBottleneckSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  /// Returns the vector in the bottleneck, [B, bottleneck_dim].
  at::Tensor bottleneck(const Encoded& encoded);
  std::int64_t output_width() const override { return bottleproj_->options.out_features(); }

 private:
  std::shared_ptr<ReadOut> pool_;
  at::Tensor proj_;
  torch::nn::Linear bottleproj_;
};

}  // namespace tessera
