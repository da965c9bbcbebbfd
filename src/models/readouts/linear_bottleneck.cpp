#include <cmath>

#include <ATen/ATen.h>

#include "src/models/readouts/linear_bottleneck.h"

namespace tessera {
namespace {

std::shared_ptr<ReadOut> pool_of(const LinearBottleneckSettings& s, const ReadOutContext& context) {
  if (s.pool == "cls") return std::make_shared<ClsReadOut>(PoolingSettings{}, context);
  if (s.pool == "eos") return std::make_shared<EosReadOut>(EosSettings{{}, s.position, std::nullopt}, context);
  const PositionsSettings positions{{}, s.skip_prefix};
  if (s.pool == "gap") return std::make_shared<GapReadOut>(positions, context);
  return std::make_shared<MaxReadOut>(positions, context);
}

}  // namespace

LinearBottleneck::LinearBottleneck(const LinearBottleneckSettings& s, const ReadOutContext& context)
    : pool_(register_module("pool", pool_of(s, context))), bottleproj_(s.bottleneck_dim, s.output_dim) {
  proj_ = register_parameter(
      "proj", at::randn({context.width, s.bottleneck_dim}) / std::sqrt(static_cast<double>(context.width)));
  register_module("bottleproj", bottleproj_);
}

at::Tensor LinearBottleneck::bottleneck(const Encoded& encoded) {
  return at::matmul(pool_->forward(encoded, {}).embedding, proj_);
}

ReadOutOutput LinearBottleneck::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  return {bottleproj_(bottleneck(encoded)), {}, {}};
}

}  // namespace tessera
