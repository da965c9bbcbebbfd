#include <ATen/ATen.h>

#include "src/models/layers.h"
#include "src/models/multi_head_attention.h"
#include "src/objectives/pairs/tiled_losses.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/common/counted_views.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/cosmos.h"
#include <tessera/base/error.h>
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {

namespace {

struct TokenSequence {
  at::Tensor tokens;  // [B, L, D]
  at::Tensor mask;    // bool [B, L], true for real tokens; undefined if all are real
};

}  // namespace

// Pools the tokens of one modality by attention. The queries are embeddings of the other modality.
class CrossModalPool : public torch::nn::Module {
 public:
  CrossModalPool(std::int64_t width, std::int64_t heads) {
    constexpr double kNormEps = 1e-5;
    query_norm_ = register_module("ln_q", std::make_shared<LayerNorm>(width, kNormEps));
    key_norm_ = register_module("ln_k", std::make_shared<LayerNorm>(width, kNormEps));
    attention_ = register_module(
        "attn", std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{.width = width, .heads = heads}));
  }

  // Maps queries [B, N, D] to pooled tokens [B, N, D], which are not normalized. The result is 0 for a sequence without real tokens.
  at::Tensor forward(const at::Tensor& queries, const TokenSequence& among) {
    const auto& [tokens, mask] = among;
    const at::Tensor keys = key_norm_->forward(zero_padding(tokens, mask));
    const at::Tensor found =
        attention_->forward(query_norm_->forward(queries), keys, attention_mask(mask, tokens.size(1)));
    return mask.defined() ? found.masked_fill(mask.any(1).logical_not().view({-1, 1, 1}), 0.0) : found;
  }

 private:
  std::shared_ptr<LayerNorm> query_norm_, key_norm_;
  std::shared_ptr<MultiHeadAttention> attention_;
};

namespace {

constexpr const char* kCosmos = "cosmos";

// Returns the crops' embeddings [B, N, D] in the order of `views`.
at::Tensor crop_embeddings(const Features& features, const std::vector<std::string>& views,
                           const TowerFeatures& (Features::*crop)(const std::string&) const,
                           const PairFeatures& captions) {
  std::vector<at::Tensor> crops;
  for (const std::string& view : views)
    crops.push_back(image_embeddings((features.*crop)(view), kCosmos, captions));
  return at::stack(crops, 1);
}

// Returns the teacher's embeddings [B, T, D] of each image's first T captions.
at::Tensor teacher_embeddings(const TowerFeatures& text, std::int64_t count, const PairFeatures& captions) {
  if (!text.global.defined()) refuse_missing_feature(kCosmos, "text_global");
  const at::Tensor all = text.global.dim() == 2 ? text.global.unsqueeze(1) : text.global;
  TORCH_CHECK(all.dim() == 3 && all.size(0) == captions.present.size(0) && all.size(1) >= count &&
                  all.size(2) == captions.text_global.size(2),
              "cosmos: the teacher's text_global must be [B, K, D] with B = ", captions.present.size(0), ", K of at least ",
              count, " and D = ", captions.text_global.size(2), ", got ", text.global.sizes());
  return to_compute(all.narrow(1, 0, count)).detach();
}

// Returns the tokens of each image's first caption. If this caption is absent, the mask marks none of its tokens as real.
TokenSequence first_caption(const TowerFeatures& text, const PairFeatures& captions) {
  if (!text.tokens.defined()) refuse_missing_feature(kCosmos, "text_tokens");
  const at::Tensor present = captions.present.select(1, 0).unsqueeze(1);  // [B, 1]
  const auto of_first = [](const at::Tensor& all, std::int64_t dims) {
    return all.defined() && all.dim() == dims ? all.select(1, 0) : all;
  };
  TokenSequence out{of_first(text.tokens, 4), of_first(text.mask, 3)};
  TORCH_CHECK(out.tokens.is_floating_point() && out.tokens.dim() == 3 && out.tokens.size(0) == captions.present.size(0) &&
                  out.tokens.size(2) == captions.text_global.size(2),
              "cosmos: text_tokens must be floating [B, K, L, D] with B = ", captions.present.size(0),
              " and D = ", captions.text_global.size(2), ", got ", text.tokens.scalar_type(), " ", text.tokens.sizes());
  out.tokens = to_compute(out.tokens);
  out.mask = out.mask.defined() ? out.mask.logical_and(present) : present.expand(out.tokens.sizes().slice(0, 2));
  return out;
}

// Restricts the columns of the relation to the first `count` captions of each image.
PairRelation of_first_captions(const PairRelation& all, std::int64_t count) {
  PairRelation out = all;
  out.present = all.present.narrow(1, 0, count);
  if (all.text_group.defined()) out.text_group = all.text_group.narrow(1, 0, count);
  return out;
}

// Returns the relation in which `count` crops per image take the place of captions.
PairRelation of_crops(const PairRelation& captions, std::int64_t count) {
  PairRelation out = captions;
  out.present = at::ones({captions.images(), count}, captions.present.options());
  out.some_absent = false;
  out.text_group.reset();
  return out;
}

// Several embeddings per image of the global batch, and a PairRelation in which these embeddings take the place of captions.
class EmbeddingSet {
 public:
  // embeddings: [B, N, D], this rank's.
  EmbeddingSet(const at::Tensor& embeddings, PairRelation relation, const ProcessGroup& group)
      : relation_(std::move(relation)) {
    const at::Tensor here = relation_.present.narrow(0, group.rank() * embeddings.size(0), embeddings.size(0));
    own_ = unit_rows(embeddings.masked_fill(here.logical_not().unsqueeze(2), 0.0));
    all_ = gather_rows(own_, group);
  }
  std::int64_t size() const { return own_.size(1); }
  const at::Tensor& all() const { return all_; }                              // [C, N, D]
  at::Tensor row(std::int64_t place) const { return own_.select(1, place); }  // [B, D]
  // Returns the relation between rows and captions. Each image's row is its embedding number `place` in the set `rows`. The captions are
  // the embeddings of this set.
  PairRelation relation_to(const EmbeddingSet& rows, std::int64_t place) const {
    PairRelation out = relation_;
    if (rows.relation_.some_absent) out.rows_present = rows.relation_.present.select(1, place);
    return out;
  }

 private:
  PairRelation relation_;
  at::Tensor own_, all_;
};

// Computes InfoNCE between the embeddings of `rows` and the embeddings of `columns`, averaged over pairs. A pair is an embedding of `rows`
// and an embedding of `columns` of the same image; pairs with an absent embedding do not count.
at::Tensor mean_info_nce(const EmbeddingSet& rows, const EmbeddingSet& columns, const at::Tensor& scale,
                         std::optional<std::int64_t> chunk, const ProcessGroup& group) {
  std::vector<at::Tensor> sums, counts;
  for (std::int64_t place = 0; place < rows.size(); ++place) {
    const PairRelation relation = columns.relation_to(rows, place);
    const Contrast contrast =
        tiled_info_nce({rows.row(place), columns.all(), relation, chunk, group}, scale, Denominator::slot);
    counts.push_back(relation.own_pairs().sum());
    sums.push_back(contrast.loss * counts.back());
  }
  return at::stack(sums).sum() / at::stack(counts).sum().clamp_min(1);
}

}  // namespace

Cosmos::Cosmos(const CosmosSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context),
      settings_(settings),
      global_views_(counted_views("global", settings.global_crops)),
      views_(global_views_) {
  for (const std::string& view : counted_views("local", settings.local_crops)) views_.push_back(view);
  if (context.embed_dim % settings.heads != 0)
    user_error("heads: ", settings.heads, " does not divide the embedding's width of ", context.embed_dim,
               ": set a number that does");
  const auto pool = [&](const char* name) {
    return register_module(name, std::make_shared<CrossModalPool>(context.embed_dim, settings.heads));
  };
  image_pool_ = pool("image_pool");
  text_pool_ = pool("text_pool");
  distill_logit_scale_ = register_parameter("distill_logit_scale", at::full({}, kInitialLogitScale, at::kFloat));
}

Needs Cosmos::needs() const {
  Needs needs{.images = {}, .texts = {}, .duplicates = settings_.duplicates != "negative"};
  for (const std::string& view : views_) needs.images[view] = {};
  for (const std::string& view : global_views_) needs.images[view].teacher = true;
  needs.images[global_views_.front()].tokens = true;
  needs.texts[settings_.text_view] = {.tokens = true, .teacher = true, .teacher_captions = settings_.global_captions};
  return needs;
}

void Cosmos::after_step(const StepContext& done) {
  ContrastiveObjective::after_step(done);
  if (!distill_logit_scale_.requires_grad()) return;
  const at::NoGradGuard no_grad;
  distill_logit_scale_.clamp_(0.0, kLargestLogitScale);
}

double Cosmos::teacher_momentum(const StepContext& step) const {
  return settings_.momentum.at(step);
}

Losses Cosmos::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const std::string& first_view = global_views_.front();
  const PairFeatures captions =
      caption_features(features, kCosmos, {first_view, settings_.text_view, settings_.duplicates, settings_.chunk},
                       {.image_tokens = true}, context.group);
  const std::int64_t globals = settings_.global_crops, taught = settings_.global_captions;
  if (captions.present.size(1) < taught)
    user_error("objective cosmos: global_captions is ", taught, ", but the view ", settings_.text_view, " has ",
               captions.present.size(1), " captions per image: set objective.global_captions to at most that");
  const at::Tensor crops = crop_embeddings(features, views_, &Features::image, captions);  // [B, N, D]
  const at::Tensor &texts = captions.text_global, &patches = captions.image_tokens;        // [B, K, D], [B, P, D]
  const TokenSequence words = first_caption(features.text(settings_.text_view), captions);

  const PairRelation& of_texts = captions.relation;
  const auto set = [&](const at::Tensor& embeddings, const PairRelation& relation) {
    return EmbeddingSet(embeddings, relation, context.group);
  };
  const auto contrast = [&](const EmbeddingSet& rows, const EmbeddingSet& columns, const at::Tensor& scale) {
    return mean_info_nce(rows, columns, scale, settings_.chunk, context.group);
  };
  const EmbeddingSet crops_with_text =
      set(crops + text_pool_->forward(crops, words), of_crops(of_texts, crops.size(1)));
  const EmbeddingSet texts_with_crop =
      set(texts + image_pool_->forward(texts, {patches, features.image(first_view).mask}), of_texts);
  const EmbeddingSet teacher_crops =
      set(crop_embeddings(features, global_views_, &Features::teacher_image, captions).detach(),
          of_crops(of_texts, globals));
  const EmbeddingSet teacher_texts =
      set(teacher_embeddings(features.teacher_text(settings_.text_view), taught, captions),
          of_first_captions(of_texts, taught));

  const at::Tensor sharpness = distill_logit_scale_.to(captions.dtype()).exp();
  const at::Tensor distillation =
      (contrast(teacher_crops, crops_with_text, sharpness) + contrast(crops_with_text, teacher_texts, sharpness) +
       contrast(teacher_crops, texts_with_crop, sharpness) + contrast(teacher_texts, texts_with_crop, sharpness)) /
      4;
  const at::Tensor clip = contrast(set(crops.narrow(1, 0, globals), of_crops(of_texts, globals)), set(texts, of_texts),
                                   scale(captions.dtype()));
  return {settings_.clip_weight * clip + settings_.distillation_weight * distillation,
          {{"loss_clip", clip}, {"loss_distillation", distillation}},
          {}};
}

}  // namespace tessera
