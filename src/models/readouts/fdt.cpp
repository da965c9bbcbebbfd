#include <cmath>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/readouts/fdt.h"
#include "src/models/readouts/pooling.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/sparsemax.h>

namespace tessera {

Fdt::Fdt(const FdtSettings& s, const ReadOutContext& context)
    : settings_(s), skip_(tokens_to_skip(s.skip_prefix, context)) {
  // The parts are named by their positions in the reference code's sequence. Position 2 is the GELU.
  const auto map = register_module("q_map", std::make_shared<torch::nn::Module>());
  norm_in_ = map->register_module("0", std::make_shared<LayerNorm>(context.width, kNormEps));
  linear_in_ = map->register_module("1", torch::nn::Linear(context.width, s.code_width));
  norm_out_ = map->register_module("3", std::make_shared<LayerNorm>(s.code_width, kNormEps));
  linear_out_ = map->register_module("4", torch::nn::Linear(s.code_width, s.code_width));
  try {
    space_dict_ = context.shared->get("the codebook of fdt", {s.codes, s.code_width}, *this, "space_dict", [&] {
      return at::randn({s.codes, s.code_width});
    });
  } catch (const c10::Error& error) {
    user_error(context.path, ": ", error.what_without_backtrace(), ": give both towers the same codes and code_width");
  }
}

Fdt::Codes Fdt::codes(const Encoded& encoded) {
  const auto [tokens, mask] = skip_positions(encoded, skip_);
  const at::Tensor hidden = at::gelu(linear_in_(norm_in_->forward(zero_padding(tokens, mask))));
  const at::Tensor query = linear_out_(norm_out_->forward(hidden)) /
                           (std::sqrt(static_cast<double>(settings_.code_width)) * settings_.temperature);
  at::Tensor scores = at_least_float(at::matmul(query, space_dict_.t()));  // [B, N, C]
  if (mask.defined()) {
    const bool zero = settings_.masked_score == "zero";
    scores = scores.masked_fill(mask.logical_not().unsqueeze(-1), zero ? 0.0 : lowest(scores.scalar_type()));
  }
  Codes out;
  out.scores = scores.amax(1);
  if (mask.defined()) out.scores = out.scores.masked_fill(mask.any(1, /*keepdim=*/true).logical_not(), 0);
  out.weights = settings_.activation == "sparsemax" ? sparsemax(out.scores) : out.scores.softmax(-1);
  return out;
}

ReadOutOutput Fdt::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  return {at::matmul(codes(encoded).weights, space_dict_), {}, {}};
}

}  // namespace tessera
