#include "src/objectives/common/tiled_info_nce.h"

#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/distributed/saved_group.h"
#include "src/objectives/common/tiles.h"
#include <tessera/distributed/ring.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // the logarithm of an empty sum

// A rank's texts as they travel: features and, beside them, numbers per text in further columns.
class Texts {
 public:
  static at::Tensor pack(const at::Tensor& features, std::initializer_list<at::Tensor> numbers) {
    std::vector<at::Tensor> parts{features};
    for (const at::Tensor& number : numbers) parts.push_back(number.unsqueeze(1));
    return at::cat(parts, 1);
  }
  Texts(const at::Tensor& block, std::int64_t width) : block_(block), width_(width) {}
  at::Tensor features(const Tile& tile) const { return tile.columns_of(block_).narrow(1, 0, width_); }
  at::Tensor number(std::int64_t index, const Tile& tile) const {
    return tile.columns_of(block_).select(1, width_ + index).contiguous();
  }

 private:
  const at::Tensor& block_;
  std::int64_t width_;
};

// Which of a tile's similarities, own images beside another rank's texts, count in no sum; undefined: all count.
at::Tensor left_out_of(const Tile& tile, const DuplicatePairs& shared, std::int64_t batch, int rank, int owner) {
  return shared.among(rank * batch + tile.row, tile.rows, owner * batch + tile.column, tile.columns);
}

void fill(at::Tensor values, const at::Tensor& mask, double value) {
  if (mask.defined()) values.masked_fill_(mask, value);
}

// part = log(exp(part) + sum over `dim` of exp(logits)).
void add_exponentials(at::Tensor part, const at::Tensor& logits, std::int64_t dim) {
  part.copy_(at::logaddexp(part, logits.logsumexp(dim)));
}

class TiledInfoNce : public torch::autograd::Function<TiledInfoNce> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& image, const at::Tensor& text,
                               const at::Tensor& scale, std::int64_t chunk, const ProcessGroup& group,
                               const DuplicatePairs& shared) {
    const NoAutocast no_autocast;
    const std::int64_t batch = image.size(0), width = image.size(1);
    const at::Tensor right = (image * text).sum(1);  // [B], the right pairs' cosines
    const at::Tensor rows = at::full({batch}, kNothing, image.options());
    // Logits are relative to the right pair's, of the row in one direction, of the column in the other.
    const Tiles tiles(batch, batch, chunk, image.is_cpu());
    const at::Tensor part = at::full({tiles.slots(), tiles.width()}, kNothing, image.options());
    const at::Tensor columns =
        visit_ring(Texts::pack(text, {right}), rows.clone(), group,
                   [&](int owner, const at::Tensor& block, const at::Tensor& sums) {
                     const Texts texts(block, width);
                     const auto on_tile = [&](const Tile& tile) {
                       const at::Tensor cosines = at::matmul(tile.rows_of(image), texts.features(tile).t());
                       const at::Tensor own = (cosines - tile.rows_of(right).unsqueeze(1)).mul_(scale);
                       const at::Tensor left_out = left_out_of(tile, shared, batch, group.rank(), owner);
                       fill(own, left_out, kNothing);
                       add_exponentials(tile.rows_of(rows), own, 1);
                       cosines.sub_(texts.number(0, tile)).mul_(scale);
                       fill(cosines, left_out, kNothing);
                       add_exponentials(tile.slot_of(part), cosines, 0);
                     };
                     tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
                       add_exponentials(sums.narrow(0, column, count), part.narrow(1, 0, count), 0);
                       part.fill_(kNothing);
                     });
                   });
    ctx->save_for_backward({image, text, scale, right, rows, columns});
    ctx->saved_data["chunk"] = chunk;
    ctx->saved_data["shared"] = shared.ids();
    save_group(ctx, group);
    return {rows.mean(), columns.mean()};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the tiled contrastive loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &image = saved[0], &text = saved[1], &scale = saved[2], &right = saved[3], &rows = saved[4],
                     &columns = saved[5];
    const std::int64_t batch = image.size(0), width = image.size(1);
    const std::int64_t chunk = ctx->saved_data["chunk"].toInt();
    const ProcessGroup& group = saved_group(ctx);
    const DuplicatePairs shared(ctx->saved_data["shared"].toTensor());
    const at::Tensor row_weight = gradients[0] / static_cast<double>(batch);
    const at::Tensor column_weight =
        gradients[1] / static_cast<double>(batch);  // goes with the texts: ranks may differ

    const Tiles tiles(batch, batch, chunk, image.is_cpu());
    const at::Tensor image_gradient = at::zeros_like(image);
    const at::Tensor scale_gradient = at::zeros({tiles.slots()}, scale.options().dtype(at::kDouble));
    const at::Tensor part = at::zeros({tiles.slots(), tiles.width(), width + 1}, text.options());
    // What comes home: the texts' gradient, and the derivative of their log-sum-exps by the scale.
    const at::Tensor sums = visit_ring(
        Texts::pack(text, {right, columns, column_weight.expand({batch})}),
        at::zeros({batch, width + 1}, text.options()), group,
        [&](int owner, const at::Tensor& block, const at::Tensor& text_sums) {
          const Texts texts(block, width);
          const auto on_tile = [&](const Tile& tile) {
            const at::Tensor images = tile.rows_of(image), features = texts.features(tile);
            const at::Tensor cosines = at::matmul(images, features.t());
            // One direction's share of the gradient of the cosines over the scale: weighted softmax of logits relative
            // to the right pair's. sum() adds in pairs; dot() would lose digits.
            at::Tensor relative = cosines - tile.rows_of(right).unsqueeze(1);
            const at::Tensor gradient =
                (relative * scale).sub_(tile.rows_of(rows).unsqueeze(1)).exp_().mul_(row_weight);
            const at::Tensor left_out = left_out_of(tile, shared, batch, group.rank(), owner);
            fill(gradient, left_out, 0.0);
            scale_gradient.select(0, tile.slot).add_(relative.mul_(gradient).sum());

            at::sub_out(relative, cosines, texts.number(0, tile));
            const at::Tensor share = (relative * scale).sub_(texts.number(1, tile)).exp_().mul_(texts.number(2, tile));
            fill(share, left_out, 0.0);
            const at::Tensor home = tile.slot_of(part);
            home.select(1, width).add_(relative.mul_(share).sum(0));
            gradient.add_(share);

            if (owner == group.rank()) tile.diagonal_of(gradient).sub_(row_weight + column_weight);
            gradient.mul_(scale);
            tile.rows_of(image_gradient).addmm_(gradient, features);
            home.narrow(1, 0, width).addmm_(gradient.t(), images);
          };
          tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
            text_sums.narrow(0, column, count).add_(part.narrow(1, 0, count).sum(0));
            part.zero_();
          });
        });
    const at::Tensor by_scale = scale_gradient.sum() + sums.select(1, width).sum();
    return {image_gradient, sums.narrow(1, 0, width), by_scale.to(scale.scalar_type()), {}, {}, {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> tiled_info_nce(const at::Tensor& image, const at::Tensor& text,
                                                 const at::Tensor& scale, std::int64_t chunk, const ProcessGroup& group,
                                                 const DuplicatePairs& shared) {
  const auto losses = TiledInfoNce::apply(image, text, scale, chunk, group, shared);
  return {losses[0], losses[1]};
}

}  // namespace tessera
