#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/objectives/objective.h>
#include <tessera/objectives/superclip_head.h>
#include <tessera/objectives/word_targets.h>

namespace tessera {

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

template <class Visitor>
void fields(Visitor& v, SuperClipSettings& s) {
  v("image_view", s.image_view, "the image view that is classified");
  v("text_view", s.text_view, "the text view whose words are the classes; captions: the words of all captions of an image");
  v("width", s.width, "of the image encoder's tokens; null: the encoder's", config::at_least(1));
  v("vocab_size", s.vocab_size, "number of words; null: the text encoder's, which is the tokenizer's", config::at_least(1));
  v("layers", s.layers, "residual blocks before the linear layer; the published models have none", config::at_least(0));
  v("mlp_ratio", s.mlp_ratio, "width of such a block inside, as a multiple of its own", config::at_least(1));
  v("idf", s.idf, "rare words weigh more, by the images seen so far; false: all words of an image weigh the same");
  v("ignored_ids", s.ignored_ids, "token ids that are no words", config::at_least(0));
  v("chunk", s.chunk,
    "words of each image whose logits are held at a time, or as many logits in whole rows; null: 16,777,216 logits",
    config::at_least(1));
}

/// SuperCLIP's classification loss (arXiv 2512.14480): each image is classified into the words of its captions, rare words
/// weighing more. loss = -1/B sum_i sum_v y_iv log softmax(logits_i)_v with y_i as word_weights() gives it; images with
/// y_i = 0 add 0 and count in B. The paper's model is a weighted_sum of clip and superclip. [B, V] is never held. It has no
/// logit_scale.
///
/// Parameters `head.*` (SuperClipHead). Buffers `document_count` int64 [V] and `caption_count` int64 []: how many images
/// had each word and how many there were, of all ranks, the batch that the weights are for included. An optimizer step
/// counts all its micro-batches once, before the first of them is computed (before_step); forward() counts a batch itself
/// where nobody has (StepContext::counted), and none in evaluation. The counts stay as they were where a step's update is
/// left out. They are never cast.
/// Statistics `words_per_image`, those that weigh anything, and `images_without_words`, a share.
class SuperClip : public Objective {
 public:
  /// Throws UserError for sizes that are not known or are not the model's.
  SuperClip(const SuperClipSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  bool looks_ahead() const override { return true; }
  void before_step(const std::vector<const Batch*>& batches, const StepContext& step) override;

  /// The counts stay integers.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  WordBags bags_of(const TowerInput& captions) const;
  /// own: count_words() of this rank.
  void add_counts(at::Tensor own, const ProcessGroup& group);
  void restore_counts(const at::Tensor& documents, const at::Tensor& captions);

  SuperClipSettings settings_;
  std::int64_t vocab_size_;
  std::shared_ptr<SuperClipHead> head_;
  at::Tensor document_count_, caption_count_;
};

}  // namespace tessera
