#include <cmath>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/position_embedding.h"

namespace tessera {

at::Tensor resize_position_embedding(const at::Tensor& embedding, config::Size grid, config::Size old_grid,
                                     std::int64_t prefix, const std::string& resampling) {
  TORCH_CHECK(embedding.dim() == 2 && embedding.size(0) == prefix + old_grid.height * old_grid.width,
              "resize_position_embedding: expected ", prefix, " + ", old_grid.height, " x ", old_grid.width,
              " rows, got ", embedding.sizes());
  if (grid == old_grid) return embedding;
  const at::Tensor image =
      at_least_float(embedding.slice(0, prefix)).t().reshape({1, embedding.size(1), old_grid.height, old_grid.width});
  const std::vector<std::int64_t> size = {grid.height, grid.width};
  const at::Tensor resized = resampling == "bilinear"  ? at::_upsample_bilinear2d_aa(image, size, /*align_corners=*/false)
                             : resampling == "bicubic" ? at::upsample_bicubic2d(image, size, /*align_corners=*/false)
                                                       : at::_upsample_bicubic2d_aa(image, size, /*align_corners=*/false);
  const at::Tensor rows = resized.flatten(2).squeeze(0).t().to(embedding.scalar_type());
  return at::cat({embedding.slice(0, 0, prefix), rows});
}

at::Tensor resample_position_grid(const at::Tensor& embedding, config::Size grid, config::Size old_grid) {
  TORCH_CHECK(embedding.dim() == 3 && embedding.size(0) == 1 && embedding.size(1) == old_grid.height * old_grid.width,
              "resample_position_grid: expected [1, ", old_grid.height, " x ", old_grid.width, ", width], got ",
              embedding.sizes());
  if (grid == old_grid) return embedding;
  const at::Tensor image = at_least_float(embedding).mT().unflatten(2, {old_grid.height, old_grid.width});
  const at::Tensor resized = at::upsample_bicubic2d(image, {grid.height, grid.width}, /*align_corners=*/false);
  return resized.flatten(2).mT().to(embedding.scalar_type());
}

at::Tensor resize_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length) {
  TORCH_CHECK(embedding.dim() == 2, "resize_text_position_embedding: expected [length, width], got ",
              embedding.sizes());
  if (embedding.size(0) == context_length) return embedding;
  const at::Tensor line = at_least_float(embedding).t().unsqueeze(0);
  return at::upsample_linear1d(line, {context_length}, /*align_corners=*/false)
      .squeeze(0)
      .t()
      .to(embedding.scalar_type())
      .contiguous();
}

at::Tensor stretch_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length,
                                           std::int64_t kept) {
  TORCH_CHECK(embedding.dim() == 2 && kept >= 0, "stretch_text_position_embedding: expected [length, width], got ",
              embedding.sizes());
  const std::int64_t behind = embedding.size(0) - kept;
  if (context_length <= embedding.size(0)) return embedding.slice(0, 0, context_length).contiguous();
  TORCH_CHECK(behind >= 2, "stretch_text_position_embedding: ", embedding.size(0), " positions with ", kept,
              " kept leave fewer than two to stretch");
  const at::Tensor old = at_least_float(embedding.slice(0, kept));
  const std::int64_t wanted = context_length - kept;
  const at::Tensor place = at::arange(wanted, at::kDouble) * (static_cast<double>(behind) / static_cast<double>(wanted));
  const at::Tensor from = place.floor().clamp_max(static_cast<double>(behind - 2)).to(at::kLong);
  const at::Tensor share = (place - from).to(old.options()).unsqueeze(1);  // a share above 1 extrapolates beyond the old embedding
  const at::Tensor rows = from.to(old.device());
  const at::Tensor begin = old.index_select(0, rows), end = old.index_select(0, rows + 1);
  return at::cat({embedding.slice(0, 0, kept), (begin + share * (end - begin)).to(embedding.scalar_type())});
}

config::Size square_grid(std::int64_t patches) {
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  return side * side == patches ? config::Size(side) : config::Size(0, 0);
}

at::Tensor fit_position_embedding(const at::Tensor& stored, config::Size grid, std::int64_t prefix,
                                  std::int64_t width, const std::string& resampling) {
  if (stored.dim() != 2 || stored.size(1) != width || stored.size(0) <= prefix) return stored;
  const std::int64_t patches = stored.size(0) - prefix;
  if (patches == grid.height * grid.width) return stored;
  const config::Size old_grid = square_grid(patches);
  return old_grid.height == 0 ? stored : resize_position_embedding(stored, grid, old_grid, prefix, resampling);
}

}  // namespace tessera
