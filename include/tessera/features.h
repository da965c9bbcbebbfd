#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/batch.h>

namespace tessera {

/// A tower's outputs for one view. A tensor is undefined if it was not requested (ViewNeeds) or if this tower does not produce it. For a
/// view with K captions per image, every tensor has the dimensions [B, K] in place of [B], and `present` is always defined.
struct TowerFeatures {
  at::Tensor global;     // [B, D], not normalized; finite but meaningless in rows that lack the view
  at::Tensor tokens;     // [B, N, W], patches, words or groups after Projection::tokens(); 0 where mask is false
  at::Tensor mask;       // bool [B, N], true for real `tokens`; undefined: all are real
  at::Tensor encoder_tokens;  // [B, N, w], the tokens after the encoder's final norm, before the projection; 0 where mask is false
  at::Tensor dense;      // [B, N, D], the tokens, mapped by the head that makes the global embedding (for zero-shot segmentation)
  at::Tensor slots;      // [B, S, Ds], not normalized
  at::Tensor attention;  // [B, S, M], each slot's weights for the input positions (words, or patches in row-major order)
  at::Tensor present;    // bool [B], false where the sample lacks the view; undefined: all have it
  TowerInput input;      // the ids and mask that the text tower received
  Boxes boxes;           // the view's boxes, unchanged
  at::Tensor grids;      // int64 [B, 2] on the CPU, numbers of rows and columns of each image's patch grid; only for TowerInput::patches
  std::map<std::string, at::Tensor> extras{};  // [B, ...], the tensors of ViewNeeds::extras
};

/// Calls f(tensor) for each tensor, including undefined ones, in a fixed order.
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
  f(features.grids);
  for (auto& [name, extra] : features.extras) f(extra);
}

/// What an objective can access of a batch: the features, keyed by view name.
struct Features {
  std::map<std::string, TowerFeatures> images;
  std::map<std::string, TowerFeatures> texts;
  /// The features from the run's teacher, without gradient, for the views that request them (ViewNeeds::teacher). For views with stored
  /// embeddings of teachers (ViewNeeds::taught), they are `global`.
  std::map<std::string, TowerFeatures> teacher_images;
  std::map<std::string, TowerFeatures> teacher_texts;
  DuplicateGroups duplicates;
  std::map<std::string, at::Tensor> extras{};  // [B, ...], the tensors of Needs::extras

  /// Returns the features of the named view. If there is no such view, throws c10::Error naming the existing ones.
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
  for (auto& [name, extra] : features.extras) f(extra);
}

/// Adds the batch's stored embeddings of teachers (ViewNeeds::taught) to the teacher's features.
void add_taught(const Batch& batch, const Needs& needs, Features& features);

/// Joins the features of consecutive chunks of a batch into features of the whole batch.
Features joined(const std::vector<Features>& chunks);

/// Turns the floating-point tensors of all views, except the teacher's, into leaves that require a gradient.
void require_gradients(Features& features);

/// Returns features of `count` samples, made by repeating the samples of `features`. The tensors are new leaves that require a gradient. No
/// two samples count as duplicates.
Features repeated_leaves(const Features& features, std::int64_t count);

}  // namespace tessera
