#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "src/models/layers.h"
#include "src/models/multi_head_attention.h"
#include "src/objectives/add_objective.h"
#include "src/objectives/common/counted_views.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/pairs/tiled_losses.h"
#include "src/objectives/teacher_momentum.h"
#include <tessera/base/error.h>
#include <tessera/distributed/collectives.h>
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct CosmosSettings {
  std::int64_t global_crops = 2;
  std::int64_t local_crops = 6;
  std::string text_view = "captions";
  std::int64_t global_captions = 2;
  std::int64_t heads = 8;
  double clip_weight = 1;
  double distillation_weight = 1;
  TeacherMomentum momentum = {0.999, 0.999};
  std::string duplicates = "negative";
  std::optional<std::int64_t> chunk;
};

void fields(auto& v, CosmosSettings& s) {
  v("global_crops", s.global_crops, "number of large crops (the image views global_0, global_1, ...), which student and teacher see",
    config::in_range(1, 100));
  v("local_crops", s.local_crops, "number of small crops (the image views local_0, local_1, ...), which only the student sees",
    config::in_range(0, 100));
  v("text_view", s.text_view, "the text view with K captions per image; long captions come first");
  v("global_captions", s.global_captions, "the teacher also sees this many of the K captions, counted from the first",
    config::at_least(1));
  v("heads", s.heads, "attention heads of the two poolings; must divide the embedding's width", config::at_least(1));
  v("clip_weight", s.clip_weight, "weight of the contrast of global crops with captions", config::at_least(0.0));
  v("distillation_weight", s.distillation_weight, "weight of the contrasts with the teacher's embeddings",
    config::at_least(0.0));
  fields(v, s.momentum);
  v("duplicates", s.duplicates, kDuplicatesHelp, config::one_of({"negative", "masked", "positive"}));
  v("chunk", s.chunk, kCaptionChunkHelp, config::at_least(1));
}

struct TokenSequence {
  at::Tensor tokens;  // [B, L, D]
  at::Tensor mask;    // bool [B, L], true for real tokens; undefined if all are real
};

// Pools the tokens of one modality by attention. The queries are embeddings of the other modality.
class CrossModalPool : public torch::nn::Module {
 public:
  CrossModalPool(std::int64_t width, std::int64_t heads) {
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

/// COSMOS (arXiv 2412.01814) contrasts crops with captions, and distills across modalities. In the student, each crop's embedding attends
/// to a caption's tokens, and each caption's embedding attends to a crop's tokens. The results are contrasted with the teacher's
/// embeddings. The teacher is a moving average of the student. It embeds only the global crops and captions, without attention to the other
/// modality.
///
/// Notation for one image: crops v_1, ..., v_N, of which the first G are global; captions t_1, ..., t_K, of which the first T are
/// global; V are the tokens of crop v_1, W the tokens of caption t_1; v' and t' are the teacher's embeddings, without gradient.
/// There is one pool per modality (`image_pool.*`, `text_pool.*`): multi-head attention with one LayerNorm for queries (`ln_q`) and
/// one for keys (`ln_k`).
///   v~_n = unit(v_n + text_pool(v_n, W))      t~_k = unit(t_k + image_pool(t_k, V))
///   L(A, B; s) = mean over pairs (a, b), a in A and b in B, of (InfoNCE(a -> b) + InfoNCE(b -> a)) / 2 on the global batch
///   clip         = L({v_1 .. v_G}, {t_1 .. t_K}; exp(logit_scale))
///   distillation = (L(v~, v') + L(v~, t') + L(t~, v') + L(t~, t')) / 4, each with exp(distill_logit_scale)
///   total        = clip_weight clip + distillation_weight distillation
/// Terms `loss_clip` and `loss_distillation`, without weights; parameters `logit_scale` and `distill_logit_scale`, both clamped to
/// [0, log 100].
///
/// In a contrast, an absent caption is neither a positive nor a negative, and no loss is computed for it. A present crop or caption serves
/// as a negative for other images even if its own positive is absent. Each mean is over the pairs (a, b) of the same image in which both a
/// and b are present. If an image's first caption is absent, its crops have nothing to attend to, and v~_n = unit(v_n). Two crops are
/// duplicates if their images are equal. A crop or caption x and a caption y are duplicates if their images are equal, or if one of the
/// captions of x's image equals y.
///
/// Differences from the released code (ExplainableML/cosmos): padding is masked in the attention, while the released code attends
/// to all positions of the text tower, padding included; gradients reach the embeddings of other ranks, while the released code
/// gathers them without gradients; tokens come from the towers' projections, while the released code has separate linear maps for
/// them; captions may be absent.
class Cosmos : public ContrastiveObjective {
 public:
  /// Throws UserError if the number of heads does not divide the width.
  Cosmos(const CosmosSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context),
        settings_(settings),
        global_views_(counted_views("global", settings.global_crops)),
        views_(global_views_) {
    contrasts_ = {"loss_clip", "loss_distillation"};
    for (const std::string& view : counted_views("local", settings.local_crops)) views_.push_back(view);
    if (context.embed_dim % settings.heads != 0)
      user_error("objective.heads: ", settings.heads, " does not divide the embedding's width of ", context.embed_dim,
                 ": set a number that does");
    const auto pool = [&](const char* name) {
      return register_module(name, std::make_shared<CrossModalPool>(context.embed_dim, settings.heads));
    };
    image_pool_ = pool("image_pool");
    text_pool_ = pool("text_pool");
    distill_logit_scale_ = register_parameter("distill_logit_scale", at::full({}, kInitialLogitScale, at::kFloat));
  }

  /// Throws c10::Error if the run keeps no teacher, and UserError if there are fewer than global_captions captions per image.
  Losses forward(const Features& features, const StepContext& context) override {
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

  Needs needs() const override {
    Needs needs{.images = {}, .texts = {}, .duplicates = settings_.duplicates != "negative"};
    for (const std::string& view : views_) needs.images[view] = {};
    for (const std::string& view : global_views_) needs.images[view].teacher = true;
    needs.images[global_views_.front()].tokens = true;
    needs.texts[settings_.text_view] = {.tokens = true, .teacher = true, .teacher_captions = settings_.global_captions};
    return needs;
  }

  void after_step(const StepContext& done) override {
    ContrastiveObjective::after_step(done);
    if (!distill_logit_scale_.requires_grad()) return;
    const at::NoGradGuard no_grad;
    distill_logit_scale_.clamp_(0.0, kLargestLogitScale);
  }

  double teacher_momentum(const StepContext& step) const override { return settings_.momentum.at(step); }

 private:
  CosmosSettings settings_;
  std::vector<std::string> global_views_, views_;  // names of the global crops; names of all crops, global ones first
  std::shared_ptr<CrossModalPool> image_pool_, text_pool_;
  at::Tensor distill_logit_scale_;
};

}  // namespace

void add_cosmos(ObjectiveRegistry& list) {
  add_objective<Cosmos, CosmosSettings>(list, "cosmos", "contrast with captions and self-distillation across modalities (Kim et al. 2024)");
}

}  // namespace tessera
