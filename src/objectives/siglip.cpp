#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/distributed/saved_group.h"
#include "src/objectives/common/negative_contrast.h"
#include "src/objectives/common/pair_features.h"
#include "src/objectives/common/tiles.h"
#include "src/objectives/siglip.h"
#include <tessera/distributed/collectives.h>
#include <tessera/distributed/ring.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Replaces the logits of matching pairs and left-out pairs, so that these pairs add nothing to the loss of the negatives.
constexpr double kNever = -std::numeric_limits<double>::infinity();

// Sets to `value` all entries of a tile that are not negatives: the matching pairs and the pairs that are left out. The tile's images
// belong to `rank`, and its texts belong to `owner`.
void fill_others(const at::Tensor& values, const Tile& tile, const ContrastTargets& targets, int rank, int owner,
                 std::int64_t batch, double value) {
  if (owner == rank) tile.diagonal_of(values).fill_(value);
  const at::Tensor left_out = tile.left_out_of(targets, batch, rank, owner);
  if (left_out.defined()) values.masked_fill_(left_out, value);
}

// Computes the sum of -log sigmoid(-logit) over this rank's images and their negatives. An image's negatives are all texts except its own
// and those that are left out. Embeddings [B, D] have unit length. Blocks of texts travel around the ranks together with their gradients.
class TiledNegatives : public torch::autograd::Function<TiledNegatives> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& image, const at::Tensor& text,
                            const at::Tensor& scale, const at::Tensor& bias, std::int64_t chunk,
                            const ProcessGroup& group, const ContrastTargets& targets) {
    const NoAutocast no_autocast;
    const Tiles tiles(image.size(0), text.size(0), chunk, image.is_cpu());
    const at::Tensor sums = at::zeros({tiles.slots()}, image.options().dtype(at::kDouble));
    visit_ring(text.clone(), {}, group, [&](int owner, const at::Tensor& block, const at::Tensor&) {
      const auto on_tile = [&](const Tile& tile) {
        const at::Tensor logits = at::matmul(tile.rows_of(image), tile.columns_of(block).t()).mul_(scale).add_(bias);
        fill_others(logits, tile, targets, group.rank(), owner, image.size(0), kNever);
        sums.select(0, tile.slot).sub_(at::log_sigmoid(logits.neg_()).sum());
      };
      tiles.walk(on_tile, [](std::int64_t, std::int64_t) {});
    });
    ctx->save_for_backward({image, text, scale, bias});
    ctx->saved_data["chunk"] = chunk;
    targets.save(ctx);
    save_group(ctx, group);
    return sums.sum().to(image.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the tiled sigmoid loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &image = saved[0], &text = saved[1], &scale = saved[2], &bias = saved[3];
    const std::int64_t chunk = ctx->saved_data["chunk"].toInt(), width = image.size(1);
    const ProcessGroup& group = saved_group(ctx);
    const ContrastTargets targets = ContrastTargets::saved(ctx);
    // The incoming gradient may differ between ranks. Each rank applies its own incoming gradient to the pairs of its images, and the ring
    // sums the texts' gradients over all ranks.
    const at::Tensor& weight = gradients[0];
    const Tiles tiles(image.size(0), text.size(0), chunk, image.is_cpu());
    const at::Tensor image_gradient = at::zeros_like(image);
    const at::Tensor scale_gradient = at::zeros({tiles.slots()}, image.options().dtype(at::kDouble));
    const at::Tensor bias_gradient = at::zeros_like(scale_gradient);
    const at::Tensor part = at::zeros({tiles.slots(), tiles.width(), width}, text.options());
    const at::Tensor text_gradient =
        visit_ring(text.clone(), at::zeros_like(text), group,
                   [&](int owner, const at::Tensor& block, const at::Tensor& text_sums) {
                     const auto on_tile = [&](const Tile& tile) {
                       const at::Tensor images = tile.rows_of(image), texts = tile.columns_of(block);
                       const at::Tensor cosines = at::matmul(images, texts.t());
                       const at::Tensor share = (cosines * scale).add_(bias).sigmoid_();
                       fill_others(share, tile, targets, group.rank(), owner, image.size(0), 0.0);
                       share.mul_(weight);
                       // sum() adds pairwise; dot() would lose digits.
                       bias_gradient.select(0, tile.slot).add_(share.sum());
                       scale_gradient.select(0, tile.slot).add_(cosines.mul_(share).sum());
                       share.mul_(scale);
                       tile.rows_of(image_gradient).addmm_(share, texts);
                       tile.slot_of(part).addmm_(share.t(), images);
                     };
                     tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
                       text_sums.narrow(0, column, count).add_(part.narrow(1, 0, count).sum(0));
                       part.zero_();
                     });
                   });
    return {image_gradient,
            text_gradient,
            scale_gradient.sum().to(scale.scalar_type()),
            bias_gradient.sum().to(bias.scalar_type()),
            {},
            {},
            {}};
  }
};

at::Tensor negatives(const at::Tensor& image, const at::Tensor& text, const at::Tensor& scale, const at::Tensor& bias,
                     std::optional<std::int64_t> chunk, const ProcessGroup& group, const ContrastTargets& targets) {
  if (chunk) return TiledNegatives::apply(image, text, scale, bias, *chunk, group, targets);
  const at::Tensor logits = at::matmul(image, gather_rows(text, group).t()) * scale + bias;  // [B, C]
  const std::int64_t own = group.rank() * image.size(0);
  const at::Tensor right = at::arange(own, own + image.size(0), image.options().dtype(at::kLong)).unsqueeze(1);
  at::Tensor wrong = logits.scatter(1, right, kNever);
  const at::Tensor left_out = targets.left_out(own, image.size(0), 0, logits.size(1));
  if (left_out.defined()) wrong = wrong.masked_fill(left_out, kNever);
  return -at::log_sigmoid(-wrong).sum();
}

}  // namespace

Siglip::Siglip(const SiglipSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context, settings.init_logit_scale), settings_(settings) {
  logit_bias_ = register_parameter("logit_bias", at::full({}, settings.init_logit_bias, at::kFloat));
}

Needs Siglip::needs() const {
  Needs needs = settings_.pairs.needs();
  settings_.negatives.add_needs(needs);
  return needs;
}

Losses Siglip::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures pairs = pair_features(features, "siglip", ContrastSettings{settings_.pairs},
                                           {.image_global = true, .text_global = true}, context.group);
  const at::Tensor image = unit_rows(pairs.image_global), text = unit_rows(pairs.text_global);  // [B, D]
  const at::Tensor factor = scale(pairs.dtype()), bias = logit_bias_.to(pairs.dtype());
  const auto mean_of = [&](const at::Tensor& sum) { return pairs.targets.mean_of(sum, image.size(0), context.group); };
  at::Tensor own = -at::log_sigmoid((image * text).sum(1) * factor + bias);  // [B]
  if (pairs.present.defined()) own = own.masked_fill(~pairs.present, 0.0);
  const at::Tensor positive = mean_of(own.sum());
  const at::Tensor negative =
      mean_of(negatives(image, text, factor, bias, settings_.pairs.chunk, context.group, pairs.targets));
  Losses losses{positive + negative, {{"loss_positive", positive}, {"loss_negative", negative}}, {}};
  const NegativeTexts wrong = negative_texts(features, "siglip", settings_.negatives, pairs);
  if (!wrong.defined()) return losses;
  const at::Tensor hard =
      mean_of(negative_sigmoid_sums(image, factor, bias, wrong, settings_.pairs.chunk, context.group).sum());
  losses.total = losses.total + hard;
  losses.terms.emplace_back("loss_hard_negative", hard);
  losses.statistics = {wrong.count()};
  return losses;
}

}  // namespace tessera
