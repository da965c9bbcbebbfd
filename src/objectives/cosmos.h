#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/objectives/teacher_momentum.h"
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

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

template <class Visitor>
void fields(Visitor& v, CosmosSettings& s) {
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

class CrossModalPool;

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
  Cosmos(const CosmosSettings& settings, const ObjectiveContext& context);
  /// Throws c10::Error if the run keeps no teacher, and UserError if there are fewer than global_captions captions per image.
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  void after_step(const StepContext& done) override;
  double teacher_momentum(const StepContext& step) const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override {
    return contrast_chance({"loss_clip", "loss_distillation"}, pairs);
  }

 private:
  CosmosSettings settings_;
  std::vector<std::string> global_views_, views_;  // names of the global crops; names of all crops, global ones first
  std::shared_ptr<CrossModalPool> image_pool_, text_pool_;
  at::Tensor distill_logit_scale_;
};

}  // namespace tessera
