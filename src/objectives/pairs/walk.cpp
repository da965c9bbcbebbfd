#include "src/objectives/pairs/walk.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <tessera/distributed/ring.h>

namespace tessera {
namespace {

std::int64_t rows_per_tile(const PairSet& pairs) {
  if (pairs.chunk) return *pairs.chunk;
  constexpr std::int64_t kUsual = 64, kElements = 1 << 24;
  const std::int64_t batch = pairs.images.size(0);
  if (!pairs.images.is_cpu()) return std::clamp<std::int64_t>(kElements / batch, 1, batch);
  return std::clamp<std::int64_t>((batch + pool_threads() - 1) / pool_threads(), 1, kUsual);
}

}  // namespace

PairWalk::PairWalk(PairSet pairs, at::Tensor scale, at::Tensor bias)
    : pairs_(std::move(pairs)),
      scale_(std::move(scale)),
      bias_(std::move(bias)),
      tiles_(batch(), batch(), rows_per_tile(pairs_), pairs_.images.is_cpu()) {}

at::Tensor PairWalk::own_cosines() const {
  return (pairs_.images.unsqueeze(1) * pairs_.own_texts()).sum(2);
}

at::Tensor PairWalk::logits(const at::Tensor& cosines) const {
  cosines.mul_(scale_);
  return bias_.defined() ? cosines.add_(bias_) : cosines;
}

at::Tensor PairWalk::visit(const at::Tensor& numbers, const TextSums& sums, const Visit& visit) const {
  const ProcessGroup& group = pairs_.group;
  const at::Tensor& texts = pairs_.texts;
  const std::int64_t width = texts.size(2);
  const bool travel = !group.alone() && !pairs_.gathered(), stay = sums.total.defined() && sums.total.size(0) != batch();
  at::Tensor block = numbers.defined() ? numbers : at::zeros({1}, texts.options());  // what travels around the ring
  if (travel) block = numbers.defined() ? at::cat({texts, numbers}, 2) : texts.clone();
  if (pairs_.gathered()) block = block.clone();  // the ring overwrites its blocks

  at::Tensor parts;
  if (sums.total.defined()) {
    parts = at::empty({tiles_.workers(), tiles_.width(), sums.total.size(2)}, sums.total.options());
    sums.clear(parts);
  }
  const auto visit_texts = [&](int owner, const at::Tensor& here, const at::Tensor& travelling) {
    const std::int64_t first = owner * batch();
    const at::Tensor features = travel ? here.narrow(2, 0, width) : texts.narrow(0, pairs_.gathered() ? first : 0, batch());
    const at::Tensor given = travel ? here.slice(2, width) : numbers.defined() ? here : at::Tensor();
    const at::Tensor total = stay ? sums.total.narrow(0, first, batch()) : travelling;
    for (std::int64_t slot = 0; slot < texts.size(1); ++slot) {
      const auto on_tile = [&](const Tile& place) {
        const PairRelation::Tile relation =
            pairs_.relation.tile(group.rank() * batch() + place.row, place.rows, first + place.column, place.columns, slot);
        const PairTile tile{place, slot, owner == group.rank(), place.rows_of(pairs_.images),
                            place.columns_of(features.select(1, slot)),
                            given.defined() ? place.columns_of(given.select(1, slot)) : given,
                            parts.defined() ? place.part_of(parts) : parts, relation.left_out, relation.further};
        visit(tile, at::matmul(tile.images, tile.texts.t()));
      };
      tiles_.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
        if (!parts.defined()) return;
        sums.merge(total.select(1, slot).narrow(0, column, count), parts.narrow(1, 0, count));
        sums.clear(parts);
      });
    }
  };
  const at::Tensor home = visit_ring(block, stay ? at::Tensor() : sums.total, group, visit_texts);
  return stay ? sums.total : home;
}

PairWalk::Gradients PairWalk::gradients(const at::Tensor& numbers, const Slopes& slopes) const {
  const at::Tensor& texts = pairs_.texts;
  const std::int64_t width = texts.size(2);
  const at::Tensor of_images = at::zeros_like(pairs_.images);
  const at::Tensor of_scale = at::zeros({workers()}, scale_.options().dtype(at::kDouble)), of_bias = at::zeros_like(of_scale);
  const auto on_tile = [&](const PairTile& tile, const at::Tensor& cosines) {
    at::Tensor total;
    for (std::int64_t side = 0; side < slopes.sides; ++side) {
      const at::Tensor origin = slopes.origin(side, tile);
      const bool last = side + 1 == slopes.sides;
      const at::Tensor relative = !origin.defined() ? cosines : last ? cosines.sub_(origin) : cosines - origin;
      at::Tensor logits = relative * scale_;
      if (bias_.defined()) logits.add_(bias_);
      const at::Tensor slope = slopes.of(side, tile, logits);
      // Sums are computed with sum(), which adds pairwise; dot() would lose digits.
      if (bias_.defined()) of_bias.select(0, tile.worker).add_(slope.sum());
      relative.mul_(slope);
      if (side == 0)
        of_scale.select(0, tile.worker).add_(relative.sum());
      else
        tile.sums.select(1, width).add_(relative.sum(0));
      total = total.defined() ? total.add_(slope) : slope;
    }
    if (slopes.own_pull.defined()) {
      const at::Tensor own = tile.own_of(total);
      own.sub_(slopes.own_pull.select(1, tile.slot).narrow(0, std::max(tile.row, tile.column), own.size(0)));
    }
    total.mul_(scale_);
    tile.rows_of(of_images).addmm_(total, tile.texts);
    tile.sums.narrow(1, 0, width).addmm_(total.t(), tile.images);
  };
  const at::Tensor zeros = at::zeros({texts.size(0), texts.size(1), width + slopes.sides - 1}, texts.options());
  const at::Tensor sums = visit(numbers, TextSums::plain(zeros), on_tile);
  return {of_images, sums.narrow(2, 0, width), (of_scale.sum() + sums.slice(2, width).sum()).to(scale_.scalar_type()),
          bias_.defined() ? of_bias.sum().to(bias_.scalar_type()) : bias_};
}

}  // namespace tessera
