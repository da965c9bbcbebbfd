#include <algorithm>

#include <ATen/ATen.h>

#include "src/models/token_multi_hot.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/stair.h"
#include <tessera/base/error.h>
#include <tessera/distributed/collectives.h>
#include <tessera/ops/flops_regularizer.h>

namespace tessera {
namespace {

// The ids of [PAD], [UNK], [CLS], [SEP] and [MASK] in BERT's vocabulary.
const std::vector<std::int64_t> kBertSpecialTokens = {0, 100, 101, 102, 103};

// Returns the ids in [0, size) that text_token_mask excludes (stage 1).
std::vector<std::int64_t> special_ids_of(const StairSettings& settings, const SharedParameters* shared,
                                         std::int64_t size) {
  if (settings.special_token_ids) {
    for (const std::int64_t id : *settings.special_token_ids)
      if (id >= size)
        user_error("objective.special_token_ids: ", id, " is not in the vocabulary 0..", size - 1,
                   ": leave the setting out to take the tokenizer's");
    return *settings.special_token_ids;
  }
  if (shared != nullptr && shared->special_token_ids) return *shared->special_token_ids;
  std::vector<std::int64_t> ids = kBertSpecialTokens;
  std::erase_if(ids, [&](std::int64_t id) { return id >= size; });
  return ids;
}

// Returns the factor for a regularizer's weight at a step (SPLADE's scheduler).
double growth_at(std::int64_t step, std::int64_t growth_steps) {
  if (growth_steps == 0) return 1;
  const double share = std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(growth_steps));
  return share * share;
}

// Sets rows of length (almost) 0 to exactly 0 and cuts their gradient, because the derivative of a cosine is not finite there.
at::Tensor without_short_rows(const at::Tensor& encoding) {
  constexpr double kShort = 1e-12;
  return encoding.masked_fill(encoding.detach().norm(2, -1, /*keepdim=*/true) <= kShort, 0.0);
}

// Absent pairs are rows of zeros, so the mean over all rows is rescaled to the mean over present rows.
at::Tensor regularizer(const at::Tensor& encoding, const PairRelation& relation, const ProcessGroup& group) {
  const at::Tensor loss = flops_regularizer(encoding, group);
  if (!relation.some_absent) return loss;
  const auto rows = static_cast<double>(relation.images());
  return loss * (rows / relation.present.sum().clamp_min(1).to(loss.scalar_type())).square();
}

}  // namespace

at::Tensor flops_regularizer(const at::Tensor& encoding, const ProcessGroup& group) {
  if (group.alone()) return flops_regularizer(encoding);
  const at::Tensor own = flops_column_sums(encoding);  // [V]
  const at::Tensor rows = at::full({1}, encoding.size(0), own.options());
  const at::Tensor all = sum_over_ranks(at::cat({own, rows}), group);
  const at::Tensor mean = all.slice(0, 0, -1) / all[-1].detach();
  return mean.square().sum();
}

Stair::Stair(const StairSettings& settings, const ObjectiveContext& context)
    : PairObjective("stair", {.image_global = true, .text_global = true}, settings, context),
      special_ids_(at::tensor(special_ids_of(settings, context.shared, context.embed_dim), at::kLong)) {
  contrasts_ = {"loss_contrastive"};
}

at::Tensor Stair::text_mask(const TowerInput& input, std::int64_t vocab_size) {
  TORCH_CHECK(input.ids.defined(), "stair: the ids of ", settings_.pairs.text_view,
              " are missing, but text_token_mask needs them");
  if (special_ids_.device() != input.ids.device()) special_ids_ = special_ids_.to(input.ids.device());
  return token_multi_hot(input.ids, input.mask, vocab_size, special_ids_);
}

Losses Stair::loss(const PairFeatures& pairs, const Features& features, const StepContext& context) {
  const ProcessGroup& group = context.group;
  const at::Tensor& image = pairs.image_global;
  const std::int64_t batch = image.size(0), vocab_size = image.size(1);
  at::Tensor text = pairs.text_global;
  if (settings_.text_token_mask)
    text = text.masked_fill(~text_mask(features.text(settings_.pairs.text_view).input, vocab_size), 0.0);

  ContrastOptions options{.chunk = settings_.pairs.chunk};
  if (!options.chunk && !group.alone()) options.chunk = batch;
  const at::Tensor sharpness = scale(pairs.dtype());
  const at::Tensor long_image = without_short_rows(image), long_text = without_short_rows(text);
  const Contrast contrast = global_contrast(long_image, long_text, sharpness, options, group, pairs.relation);
  const at::Tensor flops_image = regularizer(image, pairs.relation, group);
  const at::Tensor flops_text = regularizer(text, pairs.relation, group);
  const double growth = growth_at(context.step, settings_.lambda_growth_steps);
  const double lambda_image = growth * settings_.lambda_image, lambda_text = growth * settings_.lambda_text;

  const auto number = [&](double value) { return at::full({}, value, image.options()); };
  Losses losses{contrast.loss + lambda_image * flops_image + lambda_text * flops_text,
                {{"loss_contrastive", contrast.loss},
                 {"loss_flops_image", flops_image},
                 {"loss_flops_text", flops_text},
                 {"lambda_image", number(lambda_image)},
                 {"lambda_text", number(lambda_text)}},
                {}};
  const at::Tensor active_image = image.detach() > 0, active_text = text.detach() > 0;
  const auto mean_active = [&](const at::Tensor& active) {
    return pairs.relation.mean_of(active.count_nonzero().to(pairs.dtype()), group);
  };
  losses.statistics = {{"active_tokens.image", mean_active(active_image)},
                       {"active_tokens.text", mean_active(active_text)}};
  losses.used = {{"dead_tokens.image", active_image.any(0)}, {"dead_tokens.text", active_text.any(0)}};
  if (context.inspect)
    losses.details = {{"text_encoding", text.detach()},
                      {"logits", (sharpness * at::matmul(unit_rows(long_image), unit_rows(long_text).t())).detach()}};
  return losses;
}

}  // namespace tessera
