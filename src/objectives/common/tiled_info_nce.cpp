#include "src/objectives/common/tiled_info_nce.h"

#include <limits>
#include <optional>

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

// A block of one rank's texts, in the form in which it travels around the ring. Its columns are the features, followed by a few numbers per
// text.
class Texts {
 public:
  static at::Tensor pack(const at::Tensor& features, const std::vector<at::Tensor>& numbers) {
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

// Functions on tensors [..., n] that hold sums over the logits of each image or text. The sums are the log-sum-exp (n = 1) and, with label
// smoothing, also the plain sum (n = 2). Logits that are left out do not count.
struct LogitSums {
  static at::Tensor none(at::IntArrayRef shape, const at::TensorOptions& options) {
    const at::Tensor sums = at::empty(shape, options);
    clear(sums);
    return sums;
  }
  static void clear(const at::Tensor& sums) {
    sums.select(-1, 0).fill_(kNothing);
    if (sums.size(-1) > 1) sums.select(-1, 1).zero_();
  }
  // Sums the logits [rows, columns] along `dim` and adds the result to `sums`. Overwrites `logits`.
  static void add(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& left_out, std::int64_t dim) {
    if (sums.size(-1) > 1) {
      fill_where(logits, left_out, 0.0);
      sums.select(-1, 1).add_(logits.sum(dim));
    }
    fill_where(logits, left_out, kNothing);
    add_exponentials(sums.select(-1, 0), logits.logsumexp(dim));
  }
  // Sums `parts` [slots, n, kinds] over the slots and adds the result to `sums`.
  static void merge(const at::Tensor& sums, const at::Tensor& parts) {
    add_exponentials(sums.select(-1, 0), parts.select(-1, 0).logsumexp(0));
    if (sums.size(-1) > 1) sums.select(-1, 1).add_(parts.select(-1, 1).sum(0));
  }
};

class TiledInfoNce : public torch::autograd::Function<TiledInfoNce> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& image, const at::Tensor& text,
                               const at::Tensor& scale, const std::optional<at::Tensor>& further, std::int64_t chunk,
                               const ProcessGroup& group, const ContrastTargets& targets) {
    const NoAutocast no_autocast;
    const std::int64_t batch = image.size(0), width = image.size(1);
    const std::int64_t kinds = targets.smoothing > 0 ? 2 : 1;
    const at::Tensor right = (image * text).sum(1);  // [B], the matching pairs' cosines
    const at::Tensor rows = LogitSums::none({batch, kinds}, image.options());
    // The number of negatives of each of this rank's images. The matching text has the same number, because the relation is symmetric.
    const at::Tensor negatives = at::full({batch}, batch * group.size() - 1, image.options());
    // For a row (image to text), logits are relative to the logit of the row's matching pair; for a column (text to image), to that of the
    // column's matching pair.
    const Tiles tiles(batch, batch, chunk, image.is_cpu());
    const at::Tensor part = LogitSums::none({tiles.slots(), tiles.width(), kinds}, image.options());
    const at::Tensor columns =
        visit_ring(Texts::pack(text, {right}), rows.clone(), group,
                   [&](int owner, const at::Tensor& block, const at::Tensor& sums) {
                     const Texts texts(block, width);
                     const auto on_tile = [&](const Tile& tile) {
                       const at::Tensor cosines = at::matmul(tile.rows_of(image), texts.features(tile).t());
                       const at::Tensor own = (cosines - tile.rows_of(right).unsqueeze(1)).mul_(scale);
                       const at::Tensor left_out = tile.left_out_of(targets, batch, group.rank(), owner);
                       if (left_out.defined() && kinds > 1) tile.rows_of(negatives).sub_(left_out.sum(1));
                       LogitSums::add(tile.rows_of(rows), own, left_out, 1);
                       LogitSums::add(tile.slot_of(part), cosines.sub_(texts.number(0, tile)).mul_(scale), left_out, 0);
                     };
                     tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
                       LogitSums::merge(sums.narrow(0, column, count), part.narrow(1, 0, count));
                       LogitSums::clear(part);
                     });
                   });
    // `share` [B] is the target of each negative. `rest` [B] is (target of the matching pair) - share. Without smoothing, `share` and
    // `rest` are undefined, which stands for a share of 0 and a rest of 1.
    at::Tensor share, rest;
    if (kinds > 1) {
      share = targets.smoothing / negatives.clamp_min(1);
      rest = 1 - share * (negatives + 1);
    }
    const at::Tensor row_sums = rows.select(1, 0), column_sums = columns.select(1, 0);
    at::Tensor further_share;  // [B], the share of `further` in each row's softmax; undefined means 0
    if (further) {
      add_exponentials(row_sums, *further);
      further_share = (*further - row_sums).exp_();
    }
    ctx->save_for_backward({image, text, scale, right, row_sums, column_sums, share, rest, further_share});
    ctx->saved_data["chunk"] = chunk;
    targets.save(ctx);
    save_group(ctx, group);
    const auto loss = [&](const at::Tensor& sums) {
      const at::Tensor of_pairs = share.defined() ? sums.select(1, 0) - share * sums.select(1, 1) : sums.select(1, 0);
      return targets.mean_of(of_pairs.sum(), batch, group);
    };
    return {loss(rows), loss(columns)};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the tiled contrastive loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &image = saved[0], &text = saved[1], &scale = saved[2], &right = saved[3], &rows = saved[4],
                     &columns = saved[5], &share = saved[6], &rest = saved[7], &further_share = saved[8];
    const std::int64_t batch = image.size(0), width = image.size(1);
    const std::int64_t chunk = ctx->saved_data["chunk"].toInt();
    const ProcessGroup& group = saved_group(ctx);
    const ContrastTargets targets = ContrastTargets::saved(ctx);
    const at::Tensor row_weight = targets.mean_of(gradients[0], batch, group);
    // This weight travels with the texts, because it may differ between ranks.
    const at::Tensor column_weight = targets.mean_of(gradients[1], batch, group);

    const Tiles tiles(batch, batch, chunk, image.is_cpu());
    const at::Tensor image_gradient = at::zeros_like(image);
    const at::Tensor scale_gradient = at::zeros({tiles.slots()}, scale.options().dtype(at::kDouble));
    const at::Tensor part = at::zeros({tiles.slots(), tiles.width(), width + 1}, text.options());
    std::vector<at::Tensor> numbers = {right, columns, column_weight.expand({batch})};
    at::Tensor right_weight = (row_weight + column_weight).expand({batch});
    if (share.defined()) {
      numbers.push_back(share);
      right_weight = right_weight * rest;
    }
    at::Tensor further_gradient;
    if (further_share.defined()) {
      further_gradient = further_share * row_weight;
      right_weight = right_weight - further_gradient;
    }
    // The ring returns the texts' gradient and, in the last column, each text's part of the scale's gradient.
    const at::Tensor sums =
        visit_ring(Texts::pack(text, numbers), at::zeros({batch, width + 1}, text.options()), group,
                   [&](int owner, const at::Tensor& block, const at::Tensor& text_sums) {
                     const Texts texts(block, width);
                     const auto on_tile = [&](const Tile& tile) {
                       const at::Tensor images = tile.rows_of(image), features = texts.features(tile);
                       const at::Tensor cosines = at::matmul(images, features.t());
                       const at::Tensor left_out = tile.left_out_of(targets, batch, group.rank(), owner);
                       // The gradient with respect to the cosines is scale * (sum over both directions of weight * (softmax of the relative
                       // logits - target)). The factor `scale` is applied last. Products are summed with sum(), which adds pairwise; dot()
                       // would lose digits.
                       at::Tensor relative = cosines - tile.rows_of(right).unsqueeze(1);
                       const at::Tensor gradient = (relative * scale).sub_(tile.rows_of(rows).unsqueeze(1)).exp_();
                       if (share.defined()) gradient.sub_(tile.rows_of(share).unsqueeze(1));
                       gradient.mul_(row_weight);
                       fill_where(gradient, left_out, 0.0);
                       scale_gradient.select(0, tile.slot).add_(relative.mul_(gradient).sum());

                       at::sub_out(relative, cosines, texts.number(0, tile));
                       const at::Tensor other = (relative * scale).sub_(texts.number(1, tile)).exp_();
                       if (share.defined()) other.sub_(texts.number(3, tile));
                       other.mul_(texts.number(2, tile));
                       fill_where(other, left_out, 0.0);
                       const at::Tensor home = tile.slot_of(part);
                       home.select(1, width).add_(relative.mul_(other).sum(0));
                       gradient.add_(other);

                       if (owner == group.rank()) {
                         const at::Tensor diagonal = tile.diagonal_of(gradient);
                         diagonal.sub_(right_weight.narrow(0, std::max(tile.row, tile.column), diagonal.size(0)));
                       }
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
    return {image_gradient, sums.narrow(1, 0, width), by_scale.to(scale.scalar_type()), further_gradient, {}, {}, {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> tiled_info_nce(const at::Tensor& image, const at::Tensor& text,
                                                 const at::Tensor& scale, const at::Tensor& further,
                                                 std::int64_t chunk, const ProcessGroup& group,
                                                 const ContrastTargets& targets) {
  const auto losses = TiledInfoNce::apply(image, text, scale, further.defined() ? std::optional(further) : std::nullopt, chunk,
                                          group, targets);
  return {losses[0], losses[1]};
}

}  // namespace tessera
