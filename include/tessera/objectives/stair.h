#pragma once

#include <optional>
#include <vector>

#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct StairSettings {
  ContrastSettings pairs;
  bool text_token_mask = false;
  std::optional<std::vector<std::int64_t>> special_token_ids;
  double lambda_image = 1e-3;
  double lambda_text = 1e-3;
  std::int64_t lambda_growth_steps = 0;
};

template <class Visitor>
void fields(Visitor& v, StairSettings& s) {
  fields(v, s.pairs);
  v("text_token_mask", s.text_token_mask,
    "keep a text's encoding only at the tokens that the text contains, except special tokens (stage 1)");
  v("special_token_ids", s.special_token_ids,
    "ids that this mask never keeps; null: the model's, or BERT's 0, 100, 101, 102, 103 if the model has none",
    config::at_least(0));
  v("lambda_image", s.lambda_image, "weight of the FLOPs regularizer of image encodings", config::at_least(0));
  v("lambda_text", s.lambda_text, "weight of the FLOPs regularizer of text encodings", config::at_least(0));
  v("lambda_growth_steps", s.lambda_growth_steps,
    "number of updates over which both weights grow from 0, with the square of the step; 0: full weight at once",
    config::at_least(0));
}

/// STAIR (Chen et al. 2023) on encodings over the vocabulary (non-negative global embeddings [B, V]): CLIP's contrast of their
/// cosines (eq. 3) and the FLOPs regularizer of each tower (eq. 6) over the global batch, with weights that grow from the start of
/// the run, or of its stage (SPLADE). Memory is O(B V): with several ranks the texts' encodings always travel in a ring and are
/// never gathered. The regularizers ignore absent pairs (skip_absent). An encoding of length 0 (1e-12 or less) has cosine 0 with
/// everything and gets no gradient from the contrast.
/// Terms `loss_contrastive`, `loss_flops_image`, `loss_flops_text` (without weight), `lambda_image`, `lambda_text` (the weights at
/// this step). Statistics `active_tokens.image` and `active_tokens.text`, the mean number of active tokens per image and text as
/// the loss sees them, and the shares `dead_tokens.image`, `dead_tokens.text`. Details `text_encoding` [B, V] after the mask,
/// `logits` [B, B] of this rank's pairs (rows are images).
class Stair : public ContrastiveObjective {
 public:
  /// Throws UserError if a special token is not in the vocabulary.
  Stair(const StairSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  bool follows_step() const override { return settings_.lambda_growth_steps > 0; }

 private:
  at::Tensor text_mask(const TowerInput& input, std::int64_t vocab_size);

  StairSettings settings_;
  at::Tensor special_ids_;  // [S], for the mask
};

}  // namespace tessera
