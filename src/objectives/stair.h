#pragma once

#include <optional>
#include <vector>

#include "src/objectives/pairs/pair_objective.h"

namespace tessera {

struct StairSettings {
  ContrastSettings pairs;
  bool text_token_mask = false;
  std::optional<std::vector<std::int64_t>> special_token_ids;
  double lambda_image = 1e-3;
  double lambda_text = 1e-3;
  std::int64_t lambda_growth_steps = 0;
};

void fields(auto& v, StairSettings& s) {
  fields(v, s.pairs);
  v("text_token_mask", s.text_token_mask,
    "keep a text's encoding only at the tokens that the text contains, except special tokens (stage 1)");
  v("special_token_ids", s.special_token_ids,
    "token ids that the mask of text_token_mask never keeps; null: the model's special tokens, or BERT's (0, 100, 101, 102, 103) if "
    "the model names none",
    config::at_least(0));
  v("lambda_image", s.lambda_image, "weight of the FLOPs regularizer of image encodings", config::at_least(0));
  v("lambda_text", s.lambda_text, "weight of the FLOPs regularizer of text encodings", config::at_least(0));
  v("lambda_growth_steps", s.lambda_growth_steps,
    "number of updates over which both weights grow from 0, in proportion to the square of the step; 0: full weight from the start",
    config::at_least(0));
}

/// STAIR (Chen et al. 2023) on encodings over the vocabulary (non-negative global embeddings [B, V]): CLIP's contrast of their
/// cosines (eq. 3) and the FLOPs regularizer of each tower (eq. 6) over the global batch. The regularizers' weights grow from the start of
/// the run, or from the start of the current stage if the run has stages (SPLADE). Memory is O(B V): with several ranks, the text encodings
/// always travel around the ranks and are never gathered. The regularizers ignore absent pairs (skip_absent). An encoding whose norm is 0
/// (1e-12 or less) has cosine 0 with everything and gets no gradient from the contrast. Terms `loss_contrastive`, `loss_flops_image`,
/// `loss_flops_text` (without weight), `lambda_image`, `lambda_text` (the weights at this step). Statistics: `active_tokens.image` and
/// `active_tokens.text`, the mean number of active tokens per image and per text in the encodings that the loss uses; `dead_tokens.image`
/// and `dead_tokens.text`, the share of tokens that have not been active since the log's previous row. Details `text_encoding` [B, V] after
/// the mask, `logits` [B, B] of this rank's pairs (row = image).
class Stair : public PairObjective<StairSettings> {
 public:
  /// Throws UserError if a special token is outside the vocabulary.
  Stair(const StairSettings& settings, const ObjectiveContext& context);
  Needs needs() const override { return settings_.pairs.needs({}, {.input_ids = settings_.text_token_mask}); }
  bool follows_step() const override { return settings_.lambda_growth_steps > 0; }

 private:
  Losses loss(const PairFeatures& pairs, const Features& features, const StepContext& context) override;
  at::Tensor text_mask(const TowerInput& input, std::int64_t vocab_size);

  at::Tensor special_ids_;  // [S], the ids that text_mask() never keeps
};

/// Returns STAIR's FLOPs regularizer (eq. 6) of the encodings of all ranks: sum over k of (mean over all rows i of encoding_ik)^2, the same
/// scalar on every rank. `encoding` [N, V] has this rank's rows; N may differ between ranks. Ranks exchange only their column sums [V] and,
/// in the backward pass, the gradients of these sums. tessera/ops/flops_regularizer.h documents types and errors.
at::Tensor flops_regularizer(const at::Tensor& encoding, const ProcessGroup& group);

}  // namespace tessera
