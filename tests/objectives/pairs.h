#pragma once

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/objectives/checks.h"
#include <tessera/objectives/objective.h>

/// Random features of pairs, and settings of objectives to test with them. The tests of all objectives use this header.
namespace tessera {

struct Pairs {
  at::Tensor image_global, image_tokens, text_global, text_tokens, text_mask;
  at::Tensor image_group{}, caption_group{}, image_present{}, text_present{};
  at::Tensor negatives{}, negatives_present{};  // [B, H, D] and [B, H]

  Features features() const {
    Features out;
    out.duplicates = {image_group, caption_group};
    TowerFeatures& image = out.images["image"];
    image.global = image_global;
    image.tokens = image_tokens;
    image.present = image_present;
    TowerFeatures& text = out.texts["caption"];
    text.global = text_global;
    text.tokens = text_tokens;
    text.mask = text_mask;
    text.present = text_present;
    out.texts[kNegatives].global = negatives;
    out.texts[kNegatives].present = negatives_present;
    return out;
  }
  std::vector<at::Tensor> embeddings() const {
    return {image_global, image_tokens, text_global, text_tokens, negatives};
  }
};

/// Returns a copy of the values that requires a gradient.
inline at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().requires_grad_(true);
}

/// Returns the pairs after applying `f` to each embedding.
inline Pairs map_embeddings(const Pairs& pairs, const std::function<at::Tensor(const at::Tensor&)>& f) {
  Pairs out = pairs;
  for (auto member : {&Pairs::image_global, &Pairs::image_tokens, &Pairs::text_global, &Pairs::text_tokens,
                      &Pairs::negatives})
    out.*member = leaf(f((pairs.*member).detach()));
  return out;
}

/// Returns the pairs at these positions and counts all of them as present.
inline Pairs only(const Pairs& pairs, const at::Tensor& rows) {
  Pairs out = map_embeddings(pairs, [&](const at::Tensor& x) { return x.index_select(0, rows); });
  for (auto member :
       {&Pairs::text_mask, &Pairs::image_group, &Pairs::caption_group, &Pairs::negatives_present})
    out.*member = (pairs.*member).index_select(0, rows);
  out.image_present = out.text_present = at::Tensor();
  return out;
}

/// Returns random pairs with captions of the given lengths, padded to `words` with random values. Embeddings require a
/// gradient. The last pair has the same image as the first. If there are four or more pairs, the second and third share their
/// caption. Each pair has two hard negatives, except that the second has none and the third has one.
inline Pairs random_pairs(const std::vector<std::int64_t>& lengths, std::int64_t words, std::int64_t patches = 4,
                          std::int64_t width = 5, at::ScalarType dtype = at::kDouble, std::uint64_t seed = 1) {
  at::manual_seed(seed);
  const auto batch = static_cast<std::int64_t>(lengths.size());
  const auto leaf = [&](at::IntArrayRef shape) { return at::randn(shape, dtype).requires_grad_(true); };
  Pairs pairs{
      leaf({batch, width}), leaf({batch, patches, width}), leaf({batch, width}), leaf({batch, words, width}), {}};
  pairs.text_mask = at::arange(words).unsqueeze(0) < at::tensor(lengths, at::kLong).unsqueeze(1);
  pairs.image_group = at::arange(batch) % std::max<std::int64_t>(1, batch - 1);
  pairs.caption_group = at::arange(batch);
  if (batch >= 4) pairs.caption_group[2] = 1;
  pairs.negatives = leaf({batch, 2, width});
  pairs.negatives_present = at::ones({batch, 2}, at::kBool);
  if (batch > 1) pairs.negatives_present[1].fill_(false);
  if (batch > 2) pairs.negatives_present[2][0].fill_(false);
  return pairs;
}

inline std::shared_ptr<Objective> make_objective(const std::string& name, const std::string& yaml,
                                                 std::int64_t width = 5, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(7);
  auto objective = objectives().make({name, config::parse_yaml(yaml, "test")}, name, {.embed_dim = width});
  objective->to(dtype);
  return objective;
}

/// The loss, and its gradients with respect to the embeddings. An embedding that the loss does not use has a gradient of 0.
struct Outcome {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

inline Outcome differentiate(const at::Tensor& loss, const Pairs& pairs) {
  Outcome out{loss.detach(), {}};
  const auto gradients =
      torch::autograd::grad({loss}, pairs.embeddings(), {}, std::nullopt, false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    out.gradients.push_back(gradients[i].defined() ? gradients[i] : at::zeros_like(pairs.embeddings()[i]));
  return out;
}

inline Outcome evaluate(Objective& objective, const Pairs& pairs) {
  return differentiate(objective.forward(pairs.features(), {}).total, pairs);
}

/// An objective on pairs, with settings that exercise it. The property tests run for each of these cases.
struct ObjectiveCase {
  std::string label;
  std::string name;
  std::string yaml;
};

inline std::string label_of(const testing::TestParamInfo<ObjectiveCase>& info) {
  return info.param.label;
}
inline void PrintTo(const ObjectiveCase& objective, std::ostream* out) {
  *out << objective.name << " " << objective.yaml;
}

inline std::vector<ObjectiveCase> all_objectives() {
  return {
      {"clip", "clip", "{}"},
      {"siglip", "siglip", "{init_logit_scale: 1, init_logit_bias: -1}"},
      {"sparc", "sparc", "{}"},
      {"sparc_threshold", "sparc", "{threshold: 0.6, local_weight: 2}"},
      {"sparc_dense", "sparc", "{sparsify: false, global_weight: 0}"},
      {"sparc_softmax", "sparc", "{weights: softmax, softmax_temperature: 0.7}"},
      {"sparc_batch", "sparc", "{token_reduction: batch}"},
      {"filip", "filip", "{token_drop_rate: 0}"},
      {"filip_drop", "filip", "{token_drop_rate: 0.3}"},
      {"pacl", "pacl", "{embedder_hidden: 6}"},
      {"pacl_without_embedder", "pacl", "{embedder: false, patch_temperature: 0.5}"},
      {"pacl_learned", "pacl", "{patch_temperature: null, normalize_patches: true, embedder_residual: identity}"},
      {"gloria", "gloria", "{}"},
      {"gloria_official", "gloria", "{word_softmax: true, similarity_scale: none}"},
      {"gloria_mean", "gloria", "{word_reduction: mean, scale_score: true, score_temperature: null}"},
      {"mgca", "mgca", "{num_prototypes: 6, attention_dim: 4, attention_heads: 2}"},
      {"mgca_similarity", "mgca",
       "{num_prototypes: 6, cross_attention: similarity, local_temperature: 0.3, prototype_temperature: null}"},
      {"stair", "stair", "{lambda_image: 0.3, lambda_text: 0.2}"},
      {"weighted_sum", "weighted_sum",
       "{objectives: [{name: clip, weight: 0.5}, {name: filip, settings: {token_drop_rate: 0}}]}"},
      {"clip_shared", "clip", "{mask_duplicates: true}"},
      {"clip_nested", "clip", "{mask_duplicates: true, label_smoothing: 0.1, matryoshka: {widths: [4, 2]}}"},
      {"siglip_nested", "siglip", "{init_logit_scale: 1, init_logit_bias: -1, matryoshka: {widths: [1, 4], weights: [0.5, 1]}}"},
      {"siglip_shared", "siglip", "{init_logit_scale: 1, init_logit_bias: -1, mask_duplicates: true}"},
      {"sparc_shared", "sparc", "{mask_duplicates: true}"},
      {"filip_shared", "filip", "{token_drop_rate: 0, mask_duplicates: true}"},
      {"pacl_shared", "pacl", "{embedder: false, mask_duplicates: true}"},
      {"gloria_shared", "gloria", "{mask_duplicates: true}"},
      {"clip_soft", "clip", "{label_smoothing: 0.2}"},
      {"clip_soft_masked", "clip", "{label_smoothing: 0.2, mask_duplicates: true}"},
      {"clip_own_negatives", "clip", "{hard_negatives: own}"},
      {"clip_all_negatives", "clip", "{hard_negatives: all}"},
      {"clip_soft_masked_negatives", "clip", "{hard_negatives: all, label_smoothing: 0.2, mask_duplicates: true}"},
      {"siglip_own_negatives", "siglip", "{hard_negatives: own, init_logit_scale: 1, init_logit_bias: -1}"},
      {"siglip_all_negatives", "siglip", "{hard_negatives: all, init_logit_scale: 1, init_logit_bias: -1}"},
      {"gloria_soft", "gloria", "{label_smoothing: 0.1}"},
      {"filip_soft_masked", "filip", "{token_drop_rate: 0, label_smoothing: 0.2, mask_duplicates: true}"},
      {"mgca_shared", "mgca", "{num_prototypes: 6, cross_attention: similarity, mask_duplicates: true}"},
  };
}

}  // namespace tessera
