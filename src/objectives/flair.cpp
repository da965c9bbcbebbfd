#include "src/objectives/flair.h"

#include <ATen/ATen.h>

#include "src/models/per_sample_rng.h"
#include "src/objectives/pairs/tiled_losses.h"
#include "src/objectives/pairs/features.h"
#include <tessera/base/random.h>
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>
#include <tessera/ops/text_conditioned_pool.h>

namespace tessera {
namespace {

// A function that chooses which caption of each image j is compared with each image i. It returns caption slots, int64 [n, C], with one row
// for each of the `count` images i = first, first + 1, ... of the global batch, and one column for each j.
using NegativeSlots = std::function<at::Tensor(std::int64_t first, std::int64_t count)>;

// Returns the caption slots of each image, [C, K]. The slots of present captions come first, in ascending order.
at::Tensor present_first(const at::Tensor& present) {
  return std::get<1>(present.logical_not().to(at::kByte).sort(/*stable=*/true, /*dim=*/1, /*descending=*/false));
}

// For each image i of this rank and each image j, draws a slot uniformly among the present captions of j. The draw depends only on (seed,
// step, i, j), where i and j are the images' positions in a run with one process. Gathered tensors have a different order, because the
// loader deals images to the ranks in turn, but gathering orders images by rank.
NegativeSlots drawn_slots(const PairRelation& relation, const StepContext& context) {
  const std::int64_t ranks = context.group.size(), rank = context.group.rank(), batch = relation.images() / ranks;
  const at::Tensor slots = present_first(relation.present), counts = relation.present.sum(1).clamp_min(1);
  const at::Tensor places = at::arange(relation.images(), slots.options()).view({batch, ranks}).t().flatten();  // [C]
  const auto stream = derive_seed(context.seed, Purpose::negatives, {static_cast<std::uint64_t>(context.step)});
  return [=](std::int64_t first, std::int64_t count) {
    const std::int64_t own = first - rank * batch;
    const RowRngScope keyed(row_keys(stream, own * ranks + rank, ranks, count).to(slots.device()));
    const at::Tensor drawn =
        row_random_int(count, slots.size(0), slots.device()).index_select(1, places).remainder(counts);  // [n, C]
    return slots.gather(1, drawn.t()).t();
  };
}

// Returns the pairs of `count` images of this rank. Each image has K + C pairs: first one with each of its own K captions, then one with
// the chosen caption of each of the C images of the global batch. The pair with the image's own chosen caption is ignored (label 0).
ConditionedPairs sampled_pairs(const PairRelation& relation, const NegativeSlots& slots, std::int64_t first,
                               std::int64_t count) {
  const std::int64_t images = relation.images(), captions = relation.texts();
  const at::Tensor chosen = slots(first, count).clamp(0, captions - 1);                             // [n, C]
  const at::Tensor own_image = at::arange(first, first + count, chosen.options()).unsqueeze(1);  // [n, 1]
  const at::Tensor values = relation.values(first, count);                            // [n, C, K]
  const at::Tensor of_own = values.diagonal(first, 0, 1).t();
  const at::Tensor of_others = values.gather(2, chosen.unsqueeze(2)).squeeze(2).scatter(1, own_image, 0);
  const at::Tensor every = at::arange(images, own_image.options());
  return {at::cat({own_image * captions + at::arange(captions, own_image.options()), every * captions + chosen}, 1),
          at::cat({of_own, of_others}, 1).to(at::kChar)};
}

ConditionedPairs all_pairs(const PairRelation& relation, std::int64_t first, std::int64_t count) {
  const at::Tensor labels = relation.values(first, count).flatten(1);
  return {at::arange(labels.size(1), labels.options()).expand_as(labels), labels.to(at::kChar)};
}

// Returns the number of pairs of the global batch, including masked duplicates, as an int64 scalar on the device. Every image is paired
// with its own captions, and with one caption of every other image that has captions. If `given_slots` is undefined, the other image's
// caption is drawn among its present captions. Otherwise `given_slots` chooses the other image's caption, and the pair counts only if the
// chosen caption is present.
at::Tensor sampled_pair_count(const PairRelation& relation, const at::Tensor& given_slots) {
  const at::Tensor own = relation.present.sum();
  if (!given_slots.defined()) return own + relation.present.any(1).sum() * (relation.images() - 1);
  const at::Tensor met = relation.present.gather(1, given_slots.clamp(0, relation.texts() - 1).t());  // [C, C]
  return own + met.sum() - met.diagonal().sum();
}

}  // namespace

Flair::Flair(const FlairSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context), settings_(settings) {
  pool_ = register_module(
      "pool", std::make_shared<TextConditionedPool>(settings.pool, settings.embed_dim.value_or(context.embed_dim)));
  logit_bias_ = register_parameter("logit_bias", at::full({}, settings.init_logit_bias, at::kFloat));
}

Losses Flair::forward(const Features& features, const StepContext& context, const at::Tensor& negative_slots) {
  const NoAutocast no_autocast;
  const ProcessGroup& group = context.group;
  const bool sampled = settings_.negatives == "sampled";
  const PairFeatures captions = caption_features(
      features, "flair", settings_.captions, {.image_global = true, .image_tokens = true, .bfloat16_tokens = true}, group);
  const PairRelation& relation = captions.relation;
  const std::int64_t batch = captions.present.size(0), offset = group.rank() * batch;
  const at::Tensor sharpness = scale(captions.dtype()), bias = logit_bias_.to(captions.dtype());

  NegativeSlots slots;
  if (sampled && negative_slots.defined())
    slots = [negative_slots](std::int64_t first, std::int64_t count) { return negative_slots.narrow(0, first, count); };
  else if (sampled)
    slots = drawn_slots(relation, context);
  const auto pairs = [=](std::int64_t first, std::int64_t count) {
    return sampled ? sampled_pairs(relation, slots, offset + first, count) : all_pairs(relation, offset + first, count);
  };
  const at::Tensor texts = gather_rows(captions.text_global, group);  // [C, K, D]
  const at::Tensor sum =
      text_conditioned_loss(captions.image_tokens, texts.flatten(0, 1), sharpness, bias, pool_->parameters_of_operator(), pairs);
  // The mean of `conditioned` over ranks is (mean loss over all pairs) * (number of images in the global batch). The factor group.size() is
  // needed because `sum` covers only this rank's images.
  const at::Tensor pair_count = sampled ? sampled_pair_count(relation, negative_slots)
                                        : relation.present.sum() * relation.images();
  const at::Tensor conditioned = sum * (relation.images() * group.size()) / pair_count.clamp_min(1);
  const SigmoidLoss sigmoid = tiled_sigmoid(
      {unit_rows(captions.image_global), unit_rows(texts), relation, settings_.captions.chunk, group}, sharpness, bias);
  const at::Tensor global = relation.mean_of(sigmoid.own + sigmoid.others, group);
  return {settings_.conditioned_weight * conditioned + settings_.global_weight * global,
          {{"loss_conditioned", conditioned}, {"loss_global", global}},
          {}};
}

}  // namespace tessera
