#include "src/objectives/pairs/negatives.h"

#include <ATen/ATen.h>

#include <tessera/distributed/collectives.h>
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

// A function that computes one number per image, for a tile of b images. cosines [b, n]: the images' cosines with their negatives. absent:
// true where a negative is ignored. offset [b]: an additional number per image.
using NegativeSum = at::Tensor (*)(const at::Tensor& cosines, const at::Tensor& absent, const at::Tensor& offset,
                                   at::TensorList scalars);

at::Tensor sum_over_negatives(NegativeSum sum_of, const at::Tensor& image, const at::Tensor& offset,
                              const std::vector<at::Tensor>& scalars, const NegativeTexts& negatives,
                              std::optional<std::int64_t> chunk, const ProcessGroup& group) {
  if (negatives.of_all) {
    const at::Tensor texts = gather_rows(negatives.texts, group).flatten(0, 1);                      // [C * H, D]
    const at::Tensor absent = group.all_gather(negatives.present).flatten().logical_not();           // [C * H]
    const TileBody body = [sum_of](const std::vector<at::Tensor>& in) {
      return sum_of(at::matmul(in[0], in[2].t()), in[3], in[1], at::TensorList(in).slice(4));
    };
    std::vector<at::Tensor> shared{texts, absent};
    shared.insert(shared.end(), scalars.begin(), scalars.end());
    return map_tiles(body, {image, offset}, shared, chunk);
  }
  const TileBody body = [sum_of](const std::vector<at::Tensor>& in) {
    return sum_of(at::matmul(in[2], in[0].unsqueeze(2)).squeeze(2), in[3], in[1], at::TensorList(in).slice(4));
  };
  return map_tiles(body, {image, offset, negatives.texts, negatives.present.logical_not()}, scalars, chunk);
}

at::Tensor without_rows(const at::Tensor& sums, const NegativeTexts& negatives, double nothing) {
  return negatives.rows.defined() ? sums.masked_fill(negatives.rows.logical_not(), nothing) : sums;
}

}  // namespace

void NegativeTextSettings::add_needs(Needs& needs) const {
  if (any()) needs.texts[kNegatives] = {.optional = true};
}

NegativeTexts NegativeTexts::gathered(const ProcessGroup& group) const {
  if (!defined()) return {};
  return {gather_rows(texts, group), group.all_gather(present), rows.defined() ? group.all_gather(rows) : rows, of_all};
}

std::pair<std::string, at::Tensor> NegativeTexts::count() const {
  return {"negatives_per_image", present.sum(1).to(at::kFloat).mean()};
}

NegativeTexts negative_texts(const Features& features, const char* objective, const NegativeTextSettings& settings,
                             const PairFeatures& pairs) {
  if (!settings.any()) return {};
  const TowerFeatures& view = features.text(kNegatives);
  if (!view.global.defined()) refuse_missing_feature(objective, "text_global");
  const at::IntArrayRef image = pairs.image_global.sizes();
  TORCH_CHECK(view.global.is_floating_point() && view.global.dim() == 3 && view.global.size(0) == image[0] &&
                  view.global.size(1) > 0 && view.global.size(2) == image[1],
              objective, ": negatives must be floating [B, H, D] with B = ", image[0], " and D = ", image[1], ", got ",
              view.global.scalar_type(), " ", view.global.sizes());
  const at::IntArrayRef texts = view.global.sizes().slice(0, 2);
  NegativeTexts out;
  out.present = view.present.defined() ? view.present : at::ones(texts, view.global.options().dtype(at::kBool));
  TORCH_CHECK(out.present.scalar_type() == at::kBool && out.present.sizes() == texts, objective,
              ": present of negatives must be [B, H] = ", texts, " bool, got ", out.present.sizes(), " ",
              out.present.scalar_type());
  out.rows = pairs.present;
  if (out.rows.defined()) out.present = out.present.logical_and(out.rows.unsqueeze(1));
  // Uses masked_fill instead of a product, because absent rows may hold NaN.
  out.texts = unit_rows(to_compute(view.global).masked_fill(out.present.logical_not().unsqueeze(2), 0.0));
  out.of_all = settings.hard_negatives == "all";
  return out;
}

at::Tensor negative_log_sums(const at::Tensor& image, const at::Tensor& right, const at::Tensor& scale,
                             const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                             const ProcessGroup& group) {
  const auto log_sum = [](const at::Tensor& cosines, const at::Tensor& absent, const at::Tensor& offset,
                          at::TensorList scalars) {
    const at::Tensor logits = (cosines - offset.unsqueeze(1)) * scalars[0];
    return logits.masked_fill(absent, lowest(logits.scalar_type())).logsumexp(1);
  };
  return without_rows(sum_over_negatives(log_sum, image, right, {scale}, negatives, chunk, group), negatives,
                      lowest(image.scalar_type()));
}

at::Tensor negative_sigmoid_sums(const at::Tensor& image, const at::Tensor& scale, const at::Tensor& bias,
                                 const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                                 const ProcessGroup& group) {
  const auto sum = [](const at::Tensor& cosines, const at::Tensor& absent, const at::Tensor& offset,
                      at::TensorList scalars) {
    const at::Tensor logits = cosines * scalars[0] + scalars[1];
    return at::log_sigmoid(-logits).masked_fill(absent, 0.0).sum(1).neg() + offset;
  };
  const at::Tensor none = at::zeros({image.size(0)}, image.options());
  return without_rows(sum_over_negatives(sum, image, none, {scale, bias}, negatives, chunk, group), negatives, 0.0);
}

}  // namespace tessera
