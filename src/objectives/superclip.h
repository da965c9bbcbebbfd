#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include <tessera/objectives/objective.h>

namespace tessera {

/// SuperCLIP's head, which classifies an image into words (arXiv 2512.14480). It takes the mean of the image's patches and applies residual
/// blocks x + proj(GELU(fc(norm(x)))), a norm, and a linear layer. The GELU is exact. The published models have no residual blocks.
/// Parameters `blocks.<n>.norm|fc|proj.*`, `norm.*`, `linear.weight` [V, W], `linear.bias` [V].
class SuperClipHead : public torch::nn::Module {
 public:
  SuperClipHead(std::int64_t width, std::int64_t vocab_size, std::int64_t layers, std::int64_t mlp_ratio);

  /// Returns the linear layer's input [B, W]. patches [B, P, W]: the encoder's tokens after its final norm, before its projection
  /// and without the class token. mask: bool [B, P], true for real patches; undefined if all are real.
  at::Tensor hidden(const at::Tensor& patches, const at::Tensor& mask = {});
  torch::nn::Linear& linear() { return linear_; }

 private:
  struct Block;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  torch::nn::Linear linear_;
};

/// The words of each image of a batch, each word once. SuperCLIP's soft targets and counts are computed from them.
struct WordBags {
  at::Tensor ids;   // int64 [B, n], ascending per row; in [0, V) where `used` is true
  at::Tensor used;  // bool [B, n], true for entries that hold a word of the image
  std::int64_t vocab_size = 0;
};

/// Returns for each image the set of token ids at the real positions of all its captions, without `ignored_ids`.
/// ids   int64 [B, L] or [B, K, L]; in [0, vocab_size) at real positions, anything elsewhere
/// mask  bool, same shape, true for real positions; undefined if all are real
/// Throws c10::Error if an id is out of range: on the CPU the error names the id, on a GPU a device-side assertion fails.
WordBags word_bags(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                   const std::vector<std::int64_t>& ignored_ids);

/// Returns counts, int64 [V + 1]: the number of bags that hold each word, followed by the number of all bags, including empty ones.
/// The counts of several ranks and micro-batches can be added up.
at::Tensor count_words(const WordBags& bags);

/// Returns each word's share of its image's target, float64 [B, n] in the order of WordBags::ids; 0 at unused entries. A word's
/// weight is
///   w_v = log((caption_count + 1) / (document_count[v] + 1)),
/// which is exactly 0 for a word that every image has. If `idf` is false, every weight is 1. The weights of a bag are divided by their sum;
/// if the sum is 0, they stay 0. document_count [V] and caption_count [] are int64.
at::Tensor word_weights(const WordBags& bags, const at::Tensor& document_count, const at::Tensor& caption_count,
                        bool idf);

struct SuperClipSettings {
  std::string image_view = "image";
  std::string text_view = "caption";
  std::optional<std::int64_t> width;
  std::optional<std::int64_t> vocab_size;
  std::int64_t layers = 0;
  std::int64_t mlp_ratio = 4;
  bool idf = true;
  std::vector<std::int64_t> ignored_ids;
  std::optional<std::int64_t> chunk;
};

void fields(auto& v, SuperClipSettings& s) {
  v("image_view", s.image_view, "the image view that is classified");
  v("text_view", s.text_view, "the text view whose words are the classes; captions: the words of all captions of an image");
  v("width", s.width, "width of the image encoder's tokens; null: taken from the encoder", config::at_least(1));
  v("vocab_size", s.vocab_size, "number of words; null: the text encoder's vocabulary size, which is the tokenizer's",
    config::at_least(1));
  v("layers", s.layers, "number of residual blocks before the linear layer; the published models have none",
    config::in_range(0, config::kMostCount));
  v("mlp_ratio", s.mlp_ratio, "hidden width of such a residual block, as a multiple of `width`", config::at_least(1));
  v("idf", s.idf, "give rare words more weight, based on the images seen so far; false: all words of an image have the same weight");
  v("ignored_ids", s.ignored_ids, "token ids that do not count as words", config::at_least(0));
  v("chunk", s.chunk,
    "limits the logits in memory at a time to those of this many words for each image of the batch; null: 16,777,216 logits",
    config::at_least(1));
}

/// SuperCLIP's classification loss (arXiv 2512.14480): each image is classified into the words of its captions, and rare words
/// weigh more. loss = -1/B sum_i sum_v y_iv log softmax(logits_i)_v with y_i from word_weights(); images with y_i = 0 add 0 to the
/// sum but count in B. The paper's loss is a weighted_sum of clip and superclip. The logits [B, V] are never materialized. The
/// objective has no logit_scale.
///
/// Parameters `head.*` (SuperClipHead). Buffers: `document_count`, int64 [V], the number of images so far that have each word;
/// `caption_count`, an int64 scalar, the number of images so far. Both count the images of all ranks, including the batch whose
/// words are being weighted. An optimizer step counts all its micro-batches once, before the first of them is computed
/// (before_step); without before_step() (see StepContext::counted), forward() counts its batch itself, except in evaluation. The counts are
/// restored if a step's update is skipped, and are never cast. Statistics: `words_per_image`, the mean number of words with a weight above
/// 0; `images_without_words`, the share of images without any such word.
class SuperClip : public Objective {
 public:
  /// Throws UserError if a size is unknown or does not fit the model.
  SuperClip(const SuperClipSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  bool looks_ahead() const override { return true; }
  void before_step(const std::vector<const Batch*>& batches, const StepContext& step) override;

  /// Overridden so that the counts remain integers.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  using Objective::to;

 private:
  WordBags bags_of(const TowerInput& captions) const;
  /// Adds the counts of all ranks to the buffers; `own` is this rank's result of count_words().
  void add_counts(at::Tensor own, const ProcessGroup& group);
  void restore_counts(const at::Tensor& documents, const at::Tensor& captions);

  SuperClipSettings settings_;
  std::int64_t vocab_size_;
  std::shared_ptr<SuperClipHead> head_;
  at::Tensor document_count_, caption_count_;
};

}  // namespace tessera
