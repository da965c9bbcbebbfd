#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/models/caption_decoder.h"
#include <tessera/objectives/objective.h>

namespace tessera {

struct CaptioningDecoderSettings : CaptionDecoderSettings {
  std::string vocabulary = "shared";
  std::optional<std::int64_t> width;
  std::string precision = "float32";
  CaptioningDecoderSettings() {
    layers = 6;
    heads = 8;
  }
};

void fields(auto& v, CaptioningDecoderSettings& s) {
  fields(v, static_cast<CaptionDecoderSettings&>(s));
  v("vocabulary", s.vocabulary,
    "shared: the decoder embeds and predicts tokens with the text encoder's token table and has that table's width; own: it has its "
    "own table",
    config::one_of({"shared", "own"}));
  v("width", s.width, "width of the decoder, for vocabulary: own; null: the image encoder's width", config::at_least(1));
  v("precision", s.precision,
    "precision of the decoder's matrix products; bf16: by autocast, as training.precision does for the towers (on a GPU this "
    "includes the products with the token table); norms, softmax and losses are always float32",
    config::one_of({"float32", "bf16"}));
}

struct CaptioningSettings {
  std::string image_view = "image";
  std::string text_view = "caption";
  bool skip_absent = false;
  double caption_weight = 1.0;
  double referring_weight = 0.0;
  double grounded_weight = 0.0;
  double parallel = 0.5;
  std::int64_t coordinate_bins = 500;
  std::optional<std::int64_t> padding_id;
  std::optional<std::int64_t> chunk;
  CaptioningDecoderSettings decoder;

  /// Returns true if any term learns from boxes.
  bool uses_boxes() const { return referring_weight > 0 || grounded_weight > 0; }
};

void fields(auto& v, CaptioningSettings& s) {
  v("image_view", s.image_view, "the image view that is described");
  v("text_view", s.text_view, "the text view that describes the image; captions: all captions of an image");
  v("skip_absent", s.skip_absent,
    "true: samples without the image or the caption are loaded but not counted; false: they are not loaded");
  v("caption_weight", s.caption_weight, "weight of predicting captions; 0: off", config::at_least(0));
  v("referring_weight", s.referring_weight,
    "weight of predicting each box from its phrase (LocCa's referring expressions); 0: off", config::at_least(0));
  v("grounded_weight", s.grounded_weight,
    "weight of predicting each phrase from its box (LocCa's grounded captions); 0: off", config::at_least(0));
  v("parallel", s.parallel,
    "share of each step's images for which the decoder predicts all caption tokens at once, without seeing any of them (CapPa)",
    config::in_range(0.0, 1.0));
  v("coordinate_bins", s.coordinate_bins, "number of equal bins along the image's width and along its height; a box's coordinates "
                                          "are rounded to these bins",
    config::at_least(2));
  v("padding_id", s.padding_id,
    "id of the padding token, for text encoders that read padding as text (SigLIP): only the first padding token after a text is "
    "predicted; null: only the mask marks padding",
    config::at_least(0));
  v("chunk", s.chunk,
    "to save memory, the texts of this many images are decoded at a time, and again in the backward pass; null: all at once",
    config::at_least(1));
  v("decoder", s.decoder, "the decoder");
}
std::optional<config::Problem> validate(const CaptioningSettings& settings);

/// Results for each token of the texts. Both members are bool [B, L]. `counted` is true where a token is predicted; `right` is true where,
/// in addition, the decoder's most likely token is the correct one.
struct TokenHits {
  at::Tensor right, counted;
};

/// Learns from captioning. A decoder attends to the image encoder's tokens and predicts each caption token from the tokens
/// before it (CoCa, Yu et al. 2022). For some of the images (their share is the setting `parallel`), it predicts all tokens at once from a
/// learned mask token at each position (CapPa, Tschannen et al. 2023, section 3). With boxes it also predicts each box from its phrase and
/// each phrase from its box (LocCa, Wan et al. 2024, section 3.2): a box is four tokens (left, top, right, bottom), each floor(x * bins),
/// where x is the coordinate as a fraction of the image's width or height. These are the sequences; the part after the arrow is predicted:
///   [caption]               -> id 0, id 1, ...        or in parallel  [mask] [mask] ... -> id 0, id 1, ...
///   [referring] phrase      -> left, top, right, bottom
///   [grounded] four tokens  -> id 0, id 1, ... of the phrase
/// The softmax runs over the token table for ids and over the bins for coordinates. In parallel mode the decoder always sees
/// context_length mask tokens, so it must also predict the caption's length. Which images are predicted in parallel depends only on
/// (seed, step, position in the global batch), not on the number of ranks or on GradCache.
///
/// Each enabled term (`loss_captioning`, `loss_referring`, `loss_grounded`) is the mean over the predicted tokens of all ranks, or
/// 0 if there are none. Absent captions, boxes without a phrase and phrases without a box do not count. Parameters: `decoder.*`,
/// `task_tokens` [1, w] or (with boxes) [3, w], `mask_token` [w] if `parallel` is above 0, `coordinates` [bins, w] with boxes.
class Captioning : public Objective {
 public:
  /// Throws UserError if the model lacks the token table or the vocabulary that the decoder needs, or if the decoder's
  /// sizes do not match the model's.
  Captioning(const CaptioningSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  bool follows_step() const override { return settings_.parallel > 0 && settings_.parallel < 1; }

  const CaptioningSettings& settings() const { return settings_; }
  /// Captions images by greedy decoding. A caption ends before the first id in `ends`, or at context_length. `image` needs encoder_tokens.
  /// Returns ids, int64 [B, T]; entries after the end of a caption are -1.
  at::Tensor write(const TowerFeatures& image, const std::vector<std::int64_t>& ends);
  /// Takes one text per image, ids and mask [B, L]. Returns for each token whether the decoder's most likely id is correct, given the
  /// tokens before it (teacher forcing).
  TokenHits token_hits(const TowerFeatures& image, const at::Tensor& ids, const at::Tensor& mask);
  /// Predicts the box of each phrase by greedy decoding. Maps ids and mask [B, R, L] to float [B, R, 4], the centers of the
  /// predicted bins. Throws c10::Error if referring_weight is 0.
  at::Tensor locate(const TowerFeatures& image, const at::Tensor& ids, const at::Tensor& mask);

 private:
  /// The image encoder's tokens of B images: tokens [B, N, w]; mask [B, N] and present [B] may be undefined.
  struct Memory {
    at::Tensor tokens, mask, present;
    Memory rows(const at::Tensor& index) const;
  };
  /// Texts of the images. ids: int64 [B, K, L]. said: bool [B, K, L], true for ids that the decoder predicts or reads; false in
  /// absent texts.
  struct Texts {
    at::Tensor ids, said;
    Texts rows(const at::Tensor& index) const;
  };
  using TileBody = std::function<at::Tensor(const Memory& memory, std::int64_t first)>;

  Memory memory_of(const TowerFeatures& image) const;
  Texts texts_of(const TowerFeatures& text, const Memory& memory, const std::string& view) const;
  at::Tensor task(std::int64_t which, std::int64_t sequences) const;
  at::Tensor caption_states(const Memory& memory, const at::Tensor& ids, const at::Tensor& said, bool causal);
  at::Tensor box_states(const Memory& memory, const at::Tensor& ids, const at::Tensor& said, const at::Tensor& known);
  at::Tensor phrase_states(const Memory& memory, const at::Tensor& box, const at::Tensor& ids, const at::Tensor& said);
  at::Tensor sum_of_tiles(const Memory& memory, const TileBody& body);
  at::Tensor caption_loss(const Memory& memory, const Texts& texts, const StepContext& context);
  void add_box_losses(const Features& features, const Memory& memory, const ProcessGroup& group, Losses& losses);

  CaptioningSettings settings_;
  std::shared_ptr<CaptionDecoder> decoder_;
  at::Tensor task_tokens_, mask_token_, coordinates_;
  std::vector<at::Tensor> learned_;  // every tensor that receives a gradient from the decoder's passes
};

}  // namespace tessera
