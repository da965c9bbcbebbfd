#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/batch.h>

namespace tessera {

/// What a tower gives for one view. Undefined tensors: not asked for (ViewNeeds), or not produced by this tower. Of a
/// view of K captions per image every tensor has [B, K] in the place of [B], and `present` is always defined.
struct TowerFeatures {
  at::Tensor global;     // [B, D], not normalized; a row whose view is missing holds anything finite
  at::Tensor tokens;     // [B, N, W], patches, words or groups as the projection's `tokens` gives them; 0 where mask is false
  at::Tensor mask;       // bool [B, N] of `tokens`; undefined: all real
  at::Tensor encoder_tokens;  // [B, N, w], the same before the projection, behind the encoder's final norm; 0 where mask is false
  at::Tensor dense;      // [B, N, D], tokens through the same head as the global embedding (zero-shot segmentation)
  at::Tensor slots;      // [B, S, Ds], not normalized
  at::Tensor attention;  // [B, S, M], each slot's weight of each input position (patches row-major, or words)
  at::Tensor present;    // bool [B], false where the sample lacks the view; undefined: all have it
  TowerInput input;      // the ids and mask that a text tower saw
  Boxes boxes;           // of the view, as the data give them
  at::Tensor hidden;     // bool [B, N], the patches that the encoder did not see
  at::Tensor grids;      // int64 [B, 2] on the CPU, rows and columns of each image's patches where they differ (TowerInput::patches)
};

/// Calls f(tensor) for each tensor, undefined ones included, in a fixed order.
template <class Tower, class F>
  requires std::is_same_v<std::remove_const_t<Tower>, TowerFeatures>
void for_each_tensor(Tower& features, F&& f) {
  f(features.global);
  f(features.tokens);
  f(features.mask);
  f(features.encoder_tokens);
  f(features.dense);
  f(features.slots);
  f(features.attention);
  f(features.present);
  for_each_tensor(features.input, f);
  for_each_tensor(features.boxes, f);
  f(features.hidden);
  f(features.grids);
}

/// Features by view name: all that an objective sees of a batch.
struct Features {
  std::map<std::string, TowerFeatures> images;
  std::map<std::string, TowerFeatures> texts;
  /// By the run's teacher, without gradient: of the views that asked for it.
  std::map<std::string, TowerFeatures> teacher_images;
  std::map<std::string, TowerFeatures> teacher_texts;
  DuplicateGroups duplicates;

  /// The named view; throws c10::Error naming the views there are.
  const TowerFeatures& image(const std::string& view = "image") const;
  const TowerFeatures& text(const std::string& view = "caption") const;
  const TowerFeatures& teacher_image(const std::string& view = "image") const;
  const TowerFeatures& teacher_text(const std::string& view = "caption") const;
};

template <class Whole, class F>
  requires std::is_same_v<std::remove_const_t<Whole>, Features>
void for_each_tensor(Whole& features, F&& f) {
  for (auto* views : {&features.images, &features.texts, &features.teacher_images, &features.teacher_texts})
    for (auto& [name, view] : *views) for_each_tensor(view, f);
  for_each_tensor(features.duplicates, f);
}

/// The features of consecutive chunks of a batch as those of the batch.
Features joined(const std::vector<Features>& chunks);

/// Makes the floating tensors of all views but the teacher's leaves that take a gradient.
void require_gradients(Features& features);

/// Gradient leaves with these features' values, repeated until there are `count` samples; no two are duplicates.
Features repeated_leaves(const Features& features, std::int64_t count);

}  // namespace tessera
