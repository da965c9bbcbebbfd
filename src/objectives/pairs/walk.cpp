#include "src/objectives/pairs/walk.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/distributed/ring.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::int64_t rows_per_tile(const PairSet& pairs) {
  if (pairs.chunk) return *pairs.chunk;
  constexpr std::int64_t kUsual = 256, kElements = 1 << 24;
  const std::int64_t batch = pairs.images.size(0);
  if (!pairs.images.is_cpu()) return std::clamp<std::int64_t>(kElements / batch, 1, batch);
  return std::clamp<std::int64_t>((batch + pool_threads() - 1) / pool_threads(), 1, kUsual);
}

// Returns the part of a number per image and slot [B, K, ...], or per image [B, 1, ...], for a tile's rows and slot: [rows, 1, ...].
at::Tensor of_rows(const Tile& tile, std::int64_t slot, const at::Tensor& values) {
  return values.defined() ? tile.rows_of(values).narrow(1, values.size(1) == 1 ? 0 : slot, 1) : values;
}

}  // namespace

PairWalk::PairWalk(PairSet pairs, at::Tensor scale, at::Tensor bias)
    : pairs_(std::move(pairs)),
      scale_(std::move(scale)),
      bias_(std::move(bias)),
      tiles_(batch(), batch(), rows_per_tile(pairs_), pairs_.images.is_cpu()) {}

at::Tensor PairWalk::logits_of(const at::Tensor& relative) const {
  const at::Tensor logits = relative * scale_;
  return bias_.defined() ? logits.add_(bias_) : logits;
}

// Calls on_tile for each tile, and returns the sums of texts, as visit() does.
at::Tensor PairWalk::walk(const PairNumbers& numbers, const PairSums& sums, const OnTile& on_tile) const {
  const ProcessGroup& group = pairs_.group;
  const at::Tensor &texts = pairs_.texts, &given = numbers.texts, &total = sums.total.texts;
  const std::int64_t width = texts.size(2), slots = texts.size(1);
  const at::Tensor& taught = pairs_.taught_texts;
  const std::int64_t taught_width = taught.defined() ? taught.size(2) : 0;
  const bool travel = !group.alone() && !pairs_.gathered(), stay = total.defined() && total.size(0) != batch();
  at::Tensor block = given.defined() ? given : at::zeros({1}, texts.options());  // what travels around the ring
  if (travel) {
    std::vector<at::Tensor> parts{texts};
    for (const at::Tensor* more : {&taught, &given})
      if (more->defined()) parts.push_back(*more);
    block = at::cat(parts, 2);
  }
  if (pairs_.gathered()) block = block.clone();  // the ring overwrites its blocks

  at::Tensor parts;
  if (total.defined()) {
    parts = at::empty({tiles_.workers(), tiles_.width(), total.size(2)}, total.options());
    sums.clear(parts);
  }
  const auto visit_texts = [&](int owner, const at::Tensor& here, const at::Tensor& travelling) {
    const std::int64_t first = owner * batch();
    const auto of_owner = [&](const at::Tensor& all, std::int64_t offset) {
      return travel ? here.narrow(2, offset, all.size(2)) : all.narrow(0, pairs_.gathered() ? first : 0, batch());
    };
    const at::Tensor features = of_owner(texts, 0);
    const at::Tensor total_here = stay ? total.narrow(0, first, batch()) : travelling;
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      at::Tensor of_slot = features.select(1, slot), numbers_of_slot, taught_of_slot;
      if (taught.defined()) taught_of_slot = of_owner(taught, width).select(1, slot);
      if (slots > 1) of_slot = of_slot.contiguous();  // products with rows that are far apart are slow
      if (given.defined())
        numbers_of_slot = (travel ? here.slice(2, width + taught_width) : here).select(1, slot).t().contiguous();  // [n, B]
      const auto on_place = [&](const Tile& place) {
        const PairRelation::Tile relation = pairs_.relation.tile(group.rank() * batch() + place.row, place.rows,
                                                                 first + place.column, place.columns, slot);
        PairTile tile{place,
                      slot,
                      owner == group.rank(),
                      place.rows_of(pairs_.images),
                      place.columns_of(of_slot),
                      relation.left_out,
                      relation.further,
                      {},
                      {},
                      {},
                      {}};
        if (taught.defined()) {
          tile.taught_images = place.rows_of(pairs_.taught_images);
          tile.taught_texts = place.columns_of(taught_of_slot);
        }
        tile.numbers[0] = of_rows(place, slot, numbers.images);
        if (given.defined()) tile.numbers[1] = numbers_of_slot.narrow(1, place.column, place.columns);
        if (sums.total.images.defined()) tile.sums[0] = of_rows(place, slot, sums.total.images).squeeze(1);
        if (parts.defined()) tile.sums[1] = place.part_of(parts);
        on_tile(tile, at::matmul(tile.images, tile.texts.t()));
      };
      tiles_.walk(on_place, [&](std::int64_t column, std::int64_t count) {
        if (!parts.defined()) return;
        sums.merge(total_here.select(1, slot).narrow(0, column, count), parts.narrow(1, 0, count));
        sums.clear(parts);
      });
    }
  };
  const at::Tensor home = visit_ring(block, stay ? at::Tensor() : total, group, visit_texts);
  return stay ? total : home;
}

at::Tensor PairWalk::visit(const PairNumbers& numbers, const PairSums& sums, const Visit& visit) const {
  return walk(numbers, sums, [&](const PairTile& tile, const at::Tensor& cosines) {
    const auto logits = [&](const at::Tensor& relative) {  // overwrites its argument
      relative.mul_(scale_);
      return bias_.defined() ? relative.add_(bias_) : relative;
    };
    if (!numbers.texts.defined()) return visit(tile, 0, logits(cosines));
    visit(tile, 0, logits(cosines - tile.number(0, 0)));
    visit(tile, 1, logits(cosines.sub_(tile.number(1, 0))));
  });
}

PairWalk::Gradients PairWalk::gradients(const PairSlopes& slopes) const {
  const at::Tensor& texts = pairs_.texts;
  const std::int64_t width = texts.size(2);
  const bool both = slopes.numbers.texts.defined();
  const at::Tensor of_images = at::zeros_like(pairs_.images);
  const at::Tensor of_scale = at::zeros({workers()}, scale_.options().dtype(at::kDouble)),
                   of_bias = at::zeros_like(of_scale);
  // Returns the derivatives of one side's logits. Sums are computed with sum(), which adds pairwise; dot() would lose digits. The part of
  // the texts in the gradient of `scale` goes home with them.
  const auto slope_of = [&](const PairTile& tile, int side, const at::Tensor& relative) {
    const at::Tensor slope = slopes.of(tile, side, logits_of(relative));
    if (bias_.defined()) of_bias.select(0, tile.worker).add_(slope.sum());
    relative.mul_(slope);
    if (side == 0)
      of_scale.select(0, tile.worker).add_(relative.sum());
    else
      tile.sums[1].select(1, width).add_(relative.sum(0));
    return slope;
  };
  const auto on_tile = [&](const PairTile& tile, const at::Tensor& cosines) {
    const at::Tensor slope = slope_of(tile, 0, both ? cosines - tile.number(0, 0) : cosines);
    if (both) slope.add_(slope_of(tile, 1, cosines.sub_(tile.number(1, 0))));
    if (slopes.own_pull.defined()) {
      const at::Tensor own = tile.own_of(slope);
      own.sub_(slopes.own_pull.select(1, tile.slot).narrow(0, std::max(tile.row, tile.column), own.size(0)));
    }
    slope.mul_(scale_);
    tile.rows_of(of_images).addmm_(slope, tile.texts);
    tile.sums[1].narrow(1, 0, width).addmm_(slope.t(), tile.images);
  };
  const at::Tensor zeros = at::zeros({texts.size(0), texts.size(1), width + (both ? 1 : 0)}, texts.options());
  const at::Tensor sums = walk(slopes.numbers, PairSums::plain({{}, zeros}), on_tile);
  at::Tensor scale = of_scale.sum() + sums.slice(2, width).sum();
  if (slopes.of_scale.defined()) scale = scale + slopes.of_scale;
  return {of_images, sums.narrow(2, 0, width), scale.to(scale_.scalar_type()),
          bias_.defined() ? of_bias.sum().to(bias_.scalar_type()) : bias_};
}

namespace {

class TiledLosses : public torch::autograd::Function<TiledLosses> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& images, const at::Tensor& texts,
                               const at::Tensor& scale, const std::optional<at::Tensor>& bias,
                               const std::optional<at::Tensor>& further, const c10::intrusive_ptr<PairLoss>& loss) {
    const NoAutocast no_autocast;
    const Float32Products exact(loss->float32_products);
    ctx->save_for_backward({images, texts, scale, bias.value_or(at::Tensor())});
    ctx->saved_data["loss"] = at::IValue::make_capsule(loss);
    return loss->losses(walk_of(*loss, images, texts, scale, bias.value_or(at::Tensor())), further);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "losses in tiles have no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const auto loss = c10::static_intrusive_pointer_cast<PairLoss>(ctx->saved_data["loss"].toCapsule());
    const Float32Products exact(loss->float32_products);
    const PairWalk walk = walk_of(*loss, saved[0], saved[1], saved[2], saved[3]);
    const PairSlopes slopes = loss->slopes(walk, gradients);
    const PairWalk::Gradients of = walk.gradients(slopes);
    return {of.images, of.texts, of.scale, of.bias, slopes.of_further, {}};
  }

 private:
  static PairWalk walk_of(const PairLoss& loss, const at::Tensor& images, const at::Tensor& texts,
                          const at::Tensor& scale, const at::Tensor& bias) {
    PairSet pairs = loss.pairs;
    pairs.images = images;
    pairs.texts = texts;
    return {std::move(pairs), scale, bias};
  }
};

}  // namespace

std::vector<at::Tensor> tiled_losses(c10::intrusive_ptr<PairLoss> loss, const PairSet& pairs, const at::Tensor& scale,
                                     const at::Tensor& bias, const at::Tensor& further) {
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  // autograd saves the embeddings that get gradients itself
  loss->pairs = {{}, {}, pairs.relation, pairs.chunk, pairs.group, pairs.taught_images, pairs.taught_texts};
  return TiledLosses::apply(pairs.images, pairs.texts, scale, optional(bias), optional(further), loss);
}

}  // namespace tessera
