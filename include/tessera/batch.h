#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// What an image encoder gave for pictures in an earlier pass, of 16 or 32 bits. Undefined: not kept.
struct EncodedPictures {
  at::Tensor tokens;       // [B, N, w]
  at::Tensor class_token;  // [B, w]
  at::Tensor attention;    // [B, N, M], the input positions that make up each token

  /// One that is defined; undefined if there is none.
  const at::Tensor& values() const { return class_token.defined() ? class_token : tokens; }
  bool defined() const { return values().defined(); }
};

/// Boxes of objects in the images of a view.
struct Boxes {
  at::Tensor corners;  // float32 [B, R, 4], left, top, right, bottom as shares of the view's width and height; 0 where mask is false
  at::Tensor mask;     // bool [B, R], true = there is one
};

/// One view of a batch as a tower takes it: exactly one of `pixels`, `patches`, `regions`, `ids` and `encoded` is defined.
struct TowerInput {
  at::Tensor pixels;        // uint8 [B, 3, H, W], normalized on the device by the model; or float, already normalized
  /// uint8 or float [B, T, 3 * h * w], images of their own shapes as sequences of patches: row-major, each patch
  /// flattened as [3, h, w], padded to the longest; `mask` [B, T] says which are real.
  at::Tensor patches;
  at::Tensor grids;         // of patches: int64 [B, 2], rows and columns of each image, on the CPU also where the view is on a GPU
  at::Tensor regions;       // float32 [B, R, F], a detector's region features; F = 0 where no sample has any
  at::Tensor ids;           // int64 [B, L], token ids; [B, K, L] of a view of K captions per image
  EncodedPictures encoded;  // pictures that the tower's encoder has seen before (data.features)
  /// bool [B, R] of regions, [B, L] or [B, K, L] of ids, [B, T] of patches, [B, 1] of pictures; true = real. A row that is all false: the
  /// sample lacks the view, or that one of its captions. Undefined: all real.
  at::Tensor mask;
  /// int64 [B] or [B, K], how many of each row's ids are real, on the CPU also where the view is on a GPU: the text tower leaves the
  /// padding out by it without waiting for the device. Undefined: not known there.
  at::Tensor lengths;
  Boxes boxes;         // of an image view; undefined: nobody asked (ViewNeeds::boxes)
  at::Tensor hidden;   // bool [B, N], the patches that the encoder's mask token replaces; undefined: none

  /// The defined one of pixels, patches, regions, ids and encoded's values; undefined if there is none.
  const at::Tensor& values() const {
    return pixels.defined()    ? pixels
           : patches.defined() ? patches
           : regions.defined() ? regions
           : ids.defined()     ? ids
                               : encoded.values();
  }
  /// Whether it is of pictures, to see or seen before.
  bool of_pictures() const { return pixels.defined() || patches.defined() || encoded.defined(); }
  /// On that device but for `lengths` and `grids`; from page-locked memory without waiting.
  TowerInput to(const at::Device& device) const;
};

/// A text view: ids [B, L], mask [B, L], or both [B, K, L].
inline TowerInput text_input(at::Tensor ids, at::Tensor mask = {}) {
  TowerInput out;
  out.ids = std::move(ids);
  out.mask = std::move(mask);
  return out;
}

/// An image view of pixels.
inline TowerInput image_input(at::Tensor pixels) {
  TowerInput out;
  out.pixels = std::move(pixels);
  return out;
}

/// Which samples of a batch show the same picture or carry the same caption. Undefined: nobody asked.
struct DuplicateGroups {
  at::Tensor image_group;    // int64 [B], equal for pictures of the same bytes
  at::Tensor caption_group;  // int64 [B], equal for the same caption
  at::Tensor captions_group;  // int64 [B, K], the same of each caption of the view `captions`
};

/// Text views of several texts per image, ids [B, K, L]; all other text views hold one text, [B, L].
inline constexpr const char* kCaptions = "captions";                // K captions (data.loader.captions)
inline constexpr const char* kNegatives = "negatives";              // H texts that almost describe the image
inline constexpr const char* kPhrases = "phrases";                  // R, of the boxes of the view `image`: text r is of box r
inline constexpr const char* kPhraseNegatives = "phrase_negatives";  // R * H, of box r those from r * H on

/// Whether the text view of this name holds several texts per image.
bool holds_several_texts(const std::string& view);

/// What one step sees. Views are named: images `image`, `global`, `local`, `roi`, ..., texts `caption`, `summary`, ...,
/// and those of several texts per image.
/// Nothing is loaded that nobody asked for.
struct Batch {
  std::map<std::string, TowerInput> images;
  std::map<std::string, TowerInput> texts;
  at::Tensor labels;  // int64 [B], -1 = none
  DuplicateGroups duplicates;
  std::vector<std::string> keys;  // sample keys, for messages and forensics

  std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
  Batch to(const at::Device& device) const;
};

/// What a ViT's last block does for `dense`: what it was trained to (`plain`), or, in a model trained without patches in
/// mind, a change that needs no training and leaves them what they show. docs/evaluation.md has the formulas.
enum class LastBlock { plain, maskclip, sclip, clearclip, naclip };

/// Patches of an image view that the encoder does not see in training, drawn anew in each step.
struct HiddenPatches {
  double share = 0;     // of an image's patches, rounded down; 0: none
  bool blocks = false;  // as overlapping rectangles (BEiT, Bao et al. 2022), not one by one

  friend bool operator==(const HiddenPatches&, const HiddenPatches&) = default;
};

/// What an objective wants of one view.
struct ViewNeeds {
  bool student = true;     // the model encodes it (Features::images, texts); false: the teacher alone
  bool tokens = false;     // TowerFeatures::tokens
  bool dense = false;      // TowerFeatures::dense
  bool slots = false;      // TowerFeatures::slots
  bool attention = false;  // TowerFeatures::attention
  bool encoder_tokens = false;  // TowerFeatures::encoder_tokens
  bool input_ids = false;  // TowerFeatures::input, the ids and mask that the text tower saw
  bool boxes = false;      // TowerFeatures::boxes, those of an image view
  HiddenPatches hidden;    // of an image view, for the model and not for the teacher: TowerFeatures::hidden says which
  bool regions = false;    // an image view of the sample's region features, not of its pixels
  bool optional = false;   // a sample may lack it: its row's mask is all false then; else such a sample is skipped
  bool teacher = false;    // the run's teacher encodes it too (Features::teacher)
  std::int64_t teacher_captions = 0;  // of K captions per image it encodes the first so many; 0: all
  LastBlock last_block = LastBlock::plain;  // of `dense`, in evaluation mode; all else comes from the plain one

  friend bool operator==(const ViewNeeds&, const ViewNeeds&) = default;
};

/// What an objective wants of the data and of the towers; nothing else is loaded or computed.
struct Needs {
  std::map<std::string, ViewNeeds> images = {{"image", {}}};
  std::map<std::string, ViewNeeds> texts = {{"caption", {}}};
  bool duplicates = false;  // Batch::duplicates

  /// Whether any view is encoded by a teacher.
  bool teacher() const;
  /// Adds what another objective wants; a view is optional only where it is for both.
  void merge(const Needs& other);
};

/// Calls f(tensor) for each tensor of a view or a batch, undefined ones included, in a fixed order. What slices, moves,
/// repeats, counts or compares batches goes through here.
template <class Encoded, class F>
  requires std::is_same_v<std::remove_const_t<Encoded>, EncodedPictures>
void for_each_tensor(Encoded& encoded, F&& f) {
  f(encoded.tokens);
  f(encoded.class_token);
  f(encoded.attention);
}
template <class These, class F>
  requires std::is_same_v<std::remove_const_t<These>, Boxes>
void for_each_tensor(These& boxes, F&& f) {
  f(boxes.corners);
  f(boxes.mask);
}
template <class Input, class F>
  requires std::is_same_v<std::remove_const_t<Input>, TowerInput>
void for_each_tensor(Input& input, F&& f) {
  f(input.pixels);
  f(input.patches);
  f(input.grids);
  f(input.regions);
  f(input.ids);
  for_each_tensor(input.encoded, f);
  f(input.mask);
  f(input.lengths);
  for_each_tensor(input.boxes, f);
  f(input.hidden);
}
template <class Groups, class F>
  requires std::is_same_v<std::remove_const_t<Groups>, DuplicateGroups>
void for_each_tensor(Groups& groups, F&& f) {
  f(groups.image_group);
  f(groups.caption_group);
  f(groups.captions_group);
}
template <class Whole, class F>
  requires std::is_same_v<std::remove_const_t<Whole>, Batch>
void for_each_tensor(Whole& batch, F&& f) {
  for (auto& [name, view] : batch.images) for_each_tensor(view, f);
  for (auto& [name, view] : batch.texts) for_each_tensor(view, f);
  f(batch.labels);
  for_each_tensor(batch.duplicates, f);
}

/// A copy (of a TowerInput, Batch, TowerFeatures, Features) with each defined tensor replaced by f(tensor).
template <class Whole, class F>
Whole map_tensors(Whole whole, F&& f) {
  for_each_tensor(whole, [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = f(tensor);
  });
  return whole;
}

/// Samples first .. first + count - 1; shares memory with the batch.
Batch slice(const Batch& batch, std::int64_t first, std::int64_t count);

/// The batch's samples again and again until there are `count`; a copy.
Batch repeated(const Batch& batch, std::int64_t count);

/// Of all tensors of a batch or of features.
template <class Whole>
std::int64_t bytes_of(const Whole& whole) {
  std::int64_t total = 0;
  for_each_tensor(whole, [&](const at::Tensor& tensor) {
    if (tensor.defined()) total += static_cast<std::int64_t>(tensor.nbytes());
  });
  return total;
}

}  // namespace tessera
