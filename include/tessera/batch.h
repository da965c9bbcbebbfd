#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

struct Encoded;
struct Sample;

/// What an image encoder returned for a batch of images in an earlier pass, stored with 16 or 32 bits per value; or what a tower's read-out
/// returned for images or texts. A tensor that was not stored is undefined.
struct EncodedImages {
  at::Tensor tokens;       // [B, N, w]
  at::Tensor class_token;  // [B, w]
  at::Tensor attention;    // [B, N, M], each token's weights for the M input positions that it is made from
  at::Tensor pooled{};     // [B, w] or [B, K, w], the vectors that the projection maps to embeddings; the other tensors are then undefined

  /// Returns the first of class_token, tokens and pooled that is defined, or an undefined tensor.
  const at::Tensor& values() const { return class_token.defined() ? class_token : tokens.defined() ? tokens : pooled; }
  bool defined() const { return values().defined(); }
};

/// Boxes of objects in the images of a view.
struct Boxes {
  at::Tensor corners;  // float32 [B, R, 4]: left, top, right, bottom as fractions of the view's width and height; 0 where mask is false
  at::Tensor mask;     // bool [B, R], true where a box exists
};

/// One view of a batch as the input of a tower. Exactly one of `pixels`, `patches`, `regions`, `ids` and `encoded` is defined, except that a
/// text view with stored vectors (encoded.pooled) also has its ids.
struct TowerInput {
  at::Tensor pixels;        // uint8 [B, 3, H, W], normalized on the device by the model; or float, already normalized
  /// uint8 or float [B, T, 3 * h * w]: images that keep their own shapes, as row-major sequences of patches padded to the longest
  /// sequence. Each patch is flattened from [3, h, w]. `mask` [B, T] is true for real patches.
  at::Tensor patches;
  at::Tensor grids;         // int64 [B, 2], the size of each image in patches (height, width); on the CPU even if the view is on a GPU
  at::Tensor regions;       // float32 [B, R, F], a detector's region features; F = 0 if no sample has region features
  at::Tensor ids;           // int64 token ids [B, L], or [B, K, L] in a view with K captions per image
  EncodedImages encoded;  // images or texts that the tower has encoded before (data.features)
  /// Marks what is real (not padding and not missing), as bool [B, R] for regions, [B, L] or [B, K, L] for ids, [B, T] for patches, and
  /// [B, 1] for pixels and encoded images. A row that is all false means that the sample lacks the view or, in a view with several texts
  /// per image, that the image lacks the row's text. Undefined if everything is real.
  at::Tensor mask;
  /// int64 [B] or [B, K], the number of real ids in each row. It is on the CPU even if the view is on a GPU, so that the text tower can
  /// skip padding without waiting for the device. Undefined if the CPU does not know the lengths.
  at::Tensor lengths;
  Boxes boxes;         // boxes in an image view; undefined unless requested by ViewNeeds::boxes
  at::Tensor hidden;   // bool [B, N], true for patches that the encoder's mask token replaces; undefined if there are none
  at::Tensor taught;   // [B, E] or [B, K, E], stored embeddings of teachers, side by side (ViewNeeds::taught); undefined if there are none

  /// Returns whichever of `pixels`, `patches`, `regions`, `ids` and `encoded.values()` is defined, or an undefined tensor.
  const at::Tensor& values() const {
    return pixels.defined()    ? pixels
           : patches.defined() ? patches
           : regions.defined() ? regions
           : ids.defined()     ? ids
                               : encoded.values();
  }
  /// Whether the view consists of images, which may be encoded already.
  bool of_images() const { return pixels.defined() || patches.defined() || (encoded.defined() && !ids.defined()); }
  /// Returns a copy on the device, except for `lengths` and `grids`. Copies from page-locked memory do not wait.
  TowerInput to(const at::Device& device) const;
};

/// Makes a text view from ids and a mask, both [B, L] or both [B, K, L].
inline TowerInput text_input(at::Tensor ids, at::Tensor mask = {}) {
  TowerInput out;
  out.ids = std::move(ids);
  out.mask = std::move(mask);
  return out;
}

/// Makes an image view from pixels.
inline TowerInput image_input(at::Tensor pixels) {
  TowerInput out;
  out.pixels = std::move(pixels);
  return out;
}

/// Which samples of a batch have the same image or the same caption. Undefined unless requested (Needs::duplicates).
struct DuplicateGroups {
  at::Tensor image_group;    // int64 [B], each image's group number; images with the same bytes have the same number
  at::Tensor caption_group;  // int64 [B], each sample's group number; samples with the same caption have the same number
  at::Tensor captions_group;  // int64 [B, K], group numbers of the captions in the view `captions`; equal captions have the same number
};

/// Names of the text views that hold several texts per image (ids [B, K, L]). Any other text view holds one text, [B, L].
inline constexpr const char* kCaptions = "captions";                // K captions (data.loader.captions)
inline constexpr const char* kNegatives = "negatives";              // H hard negatives: texts that almost describe the image
inline constexpr const char* kPhrases = "phrases";                  // R phrases, where phrase r describes box r of the view `image`
inline constexpr const char* kPhraseNegatives = "phrase_negatives";  // H hard negatives per box; those of box r start at index r * H

/// Whether the text view of this name holds several texts per image.
bool holds_several_texts(const std::string& view);

/// The data of one step. The keys of `images` are names of image views (`image`, `global`, `local`, `roi`, ...). The keys of `texts` are
/// names of text views (`caption`, `summary`, ..., and the views with several texts per image). Only the views listed in Needs are loaded.
struct Batch {
  std::map<std::string, TowerInput> images;
  std::map<std::string, TowerInput> texts;
  at::Tensor labels;  // int64 [B]; -1 if the sample has no label
  DuplicateGroups duplicates;
  std::map<std::string, at::Tensor> extras{};  // [B, ...], the tensors of Needs::extras
  std::vector<std::string> keys;  // sample keys, for messages and error reports

  std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
  Batch to(const at::Device& device) const;
};

/// How a ViT's last block computes the patch features `dense`. `plain` computes them as in training. The others change the block, without
/// any training, so that patches keep their local content even if the model was trained only on whole images. docs/evaluation.md has the
/// formulas.
enum class LastBlock { plain, maskclip, sclip, clearclip, naclip };

/// How to choose which patches of an image view are hidden from the encoder in training. The choice changes from step to step.
struct HiddenPatches {
  double share = 0;     // share of an image's patches to hide, rounded down to whole patches; 0: none
  bool blocks = false;  // whether patches are hidden in overlapping rectangles (BEiT, Bao et al. 2022) instead of one by one

  friend bool operator==(const HiddenPatches&, const HiddenPatches&) = default;
};

/// A tensor that an objective needs from a view and that TowerFeatures has no member for. Its name (ViewNeeds::extras) stands for the
/// computation: objectives that use the same name share the tensor, so a name must contain all settings that change the result.
struct TowerExtra {
  /// Returns a tensor [B, ...] from the encoder's input, whose pixels are normalized, and from its output (tessera/models/tower.h). In a
  /// view with K texts per image, each text is a row. The values of rows that lack the view are meaningless.
  std::function<at::Tensor(const TowerInput& input, const Encoded& encoded)> compute;

  friend bool operator==(const TowerExtra&, const TowerExtra&) { return true; }
};

/// A tensor that an objective needs from the data and that Batch has no member for. Its name (Needs::extras) stands for the content.
struct DataExtra {
  /// Returns a sample's tensor, which must have the shape and type of `example` (tessera/sample.h). It is called by several threads, before
  /// the sample's image is decoded. Throws SampleError to reject the sample.
  std::function<at::Tensor(const Sample& sample)> read;
  at::Tensor example;  // the tensor of every sample in measurements without data
};

/// What an objective needs from one view.
struct ViewNeeds {
  bool student = true;     // whether the model encodes the view (Features::images, texts); if false, only the teacher does
  bool tokens = false;     // whether TowerFeatures::tokens is needed
  bool dense = false;      // whether TowerFeatures::dense is needed
  bool slots = false;      // whether TowerFeatures::slots is needed
  bool attention = false;  // whether TowerFeatures::attention is needed
  bool encoder_tokens = false;  // whether TowerFeatures::encoder_tokens is needed
  bool input_ids = false;  // whether TowerFeatures::input is needed: the ids and mask that the text tower received
  bool boxes = false;      // whether TowerFeatures::boxes is needed; only for image views
  HiddenPatches hidden;    // which patches of an image view are hidden from the model but not from the teacher (TowerInput::hidden)
  bool regions = false;    // whether this image view holds the sample's region features instead of its pixels
  bool optional = false;   // whether samples that lack the view are kept, with a mask row that is all false; if not, they are skipped
  bool teacher = false;    // whether the run's teacher encodes the view too (Features::teacher_images, teacher_texts)
  std::int64_t taught = 0;   // width of the stored embeddings of teachers that the view's inputs must have (TowerInput::taught); 0: none
  std::int64_t teacher_captions = 0;  // how many of an image's K captions the teacher encodes; 0: all
  LastBlock last_block = LastBlock::plain;  // kind of last block for `dense` in evaluation mode; all other features use a plain last block
  std::map<std::string, TowerExtra> extras{};  // TowerFeatures::extras that are needed, if a tower encodes the view

  friend bool operator==(const ViewNeeds&, const ViewNeeds&) = default;
};

/// What an objective needs from the data and the towers. Nothing else is loaded or computed.
struct Needs {
  std::map<std::string, ViewNeeds> images = {{"image", {}}};
  std::map<std::string, ViewNeeds> texts = {{"caption", {}}};
  bool duplicates = false;  // whether Batch::duplicates is needed
  /// The frozen model that is the run's teacher, if a view is encoded by a teacher; nullopt: the moving average of the trained model.
  std::optional<std::string> teacher_model{};
  std::map<std::string, DataExtra> extras{};  // Features::extras that are needed

  /// Whether any view is encoded by a teacher.
  bool teacher() const;
  /// Adds the needs of another objective. A view that both objectives need is optional only if it is optional for both.
  void merge(const Needs& other);
};

/// Calls f(tensor) for each tensor of a view or a batch, including undefined ones, in a fixed order. All code that slices, moves,
/// repeats, counts or compares batches uses these functions.
template <class Encoded, class F>
  requires std::is_same_v<std::remove_const_t<Encoded>, EncodedImages>
void for_each_tensor(Encoded& encoded, F&& f) {
  f(encoded.tokens);
  f(encoded.class_token);
  f(encoded.attention);
  f(encoded.pooled);
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
  f(input.taught);
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
  for (auto& [name, extra] : batch.extras) f(extra);
}

/// Returns a copy of a TowerInput, Batch, TowerFeatures or Features in which each defined tensor is replaced by f(tensor).
template <class Whole, class F>
Whole map_tensors(Whole whole, F&& f) {
  for_each_tensor(whole, [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = f(tensor);
  });
  return whole;
}

/// Returns the extras of `count` samples in measurements without data.
std::map<std::string, at::Tensor> example_extras(const Needs& needs, std::int64_t count, const at::Device& device);

/// Returns samples first .. first + count - 1 of the batch, sharing its memory.
Batch slice(const Batch& batch, std::int64_t first, std::int64_t count);

/// Returns a copy with `count` samples, which repeats the batch's samples in order as often as needed.
Batch repeated(const Batch& batch, std::int64_t count);

/// Returns the total bytes of all tensors of a batch or of features.
template <class Whole>
std::int64_t bytes_of(const Whole& whole) {
  std::int64_t total = 0;
  for_each_tensor(whole, [&](const at::Tensor& tensor) {
    if (tensor.defined()) total += static_cast<std::int64_t>(tensor.nbytes());
  });
  return total;
}

}  // namespace tessera
