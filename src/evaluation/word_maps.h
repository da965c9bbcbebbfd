#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/evaluation/embedder_views.h"
#include "src/evaluation/token_spans.h"
#include <tessera/evaluation/task.h>

namespace tessera {

/// Where in an image a word of a text is found.
struct WordMap {
  TextWord word;
  std::vector<float> patches;  // one value per patch, in row-major order
};

/// The maps of the words of one text on one image.
struct ImageWords {
  config::Size grid;  // rows and columns of the patches
  std::vector<WordMap> maps;
};

/// Computes maps of words with the weights that the model was trained with. The first of these that the model has decides:
///   - an objective that compares single patches with texts (PatchWeights): SPARC, FILIP, PACL, GLoRIA;
///   - a text-conditioned pool (FLAIR): the attention of each word, as a text, to the patches;
///   - slots with attention in both towers (SPARO): the attention of the image's slots, each weighted by its cosine with the same slot of
///     the word, as a text, if the cosine is positive;
///   - token weights (STAIR): the activations of the word's tokens at the patches;
///   - otherwise the cosine of each patch with the word, as a text.
class WordMaps {
 public:
  /// `embedder` and what `context` holds must outlive this object. Throws UserError if the model has no tokenizer, or if its patches do not
  /// fit the objective.
  WordMaps(const Embedder& embedder, const EvaluationContext& context);
  /// Returns whether the objective compares single patches with texts or has a text-conditioned pool. False if it cannot be built.
  static bool are_trained(const EvaluationContext& context);
  WordMaps(const WordMaps&) = delete;
  WordMaps& operator=(const WordMaps&) = delete;

  /// The model that encodes the images for of(), and the features that of() needs.
  const Embedder& embedder() const { return pooled_ ? *pooled_ : embedder_; }
  const ViewNeeds& needs() const { return needs_; }
  /// Returns sentences that say what the numbers are.
  const std::string& rule() const { return rule_; }
  /// Returns a warning about a model that was not trained on single patches; empty if it was.
  const std::string& note() const { return note_; }

  /// Returns the maps of the first `most` words of a text. `image` are the features of one image. Throws UserError if the patches do not
  /// form a grid.
  ImageWords of(TowerFeatures image, const std::string& text, std::int64_t most) const;

 private:
  using Maps = std::function<at::Tensor(const TowerFeatures& image, config::Size grid, const TowerFeatures& text,
                                        const std::vector<TextWord>& words)>;

  void use_objective(const std::shared_ptr<Objective>& objective);
  void use_pool();
  bool use_slots();
  bool use_token_space();
  void use_cosines();

  const Embedder& embedder_;
  std::optional<ConditionedEmbedder> pooled_;
  ViewNeeds needs_, text_needs_{.input_ids = true};
  std::string rule_, note_;
  Maps maps_;  // the map of each word, float [words, P]
};

}  // namespace tessera
