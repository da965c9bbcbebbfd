#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// A caption and the annotated phrases in it.
struct PhrasedCaption {
  std::string text;
  std::vector<std::array<std::int64_t, 2>> phrases;  // bytes [begin, end)
};

/// Returns the sample's captions that have annotated phrases, in order.
std::vector<PhrasedCaption> phrased_captions(const Sample& sample);

/// Captions with annotated phrases, and a model's grouping of their tokens.
struct GroupedCaptions {
  std::vector<std::size_t> sample;               // the index of each caption's sample
  std::vector<std::vector<std::string>> tokens;  // tokens of each caption, without padding
  std::vector<std::int64_t> spelled;  // how many tokens of each caption cover text; 0 if they do not spell the caption
  at::Tensor weights;                 // [B, K, L], weight of each token in each group
  at::Tensor mask;                    // bool [B, L], tokens that cover text
  at::Tensor segments;                // bool [B, S, L], the phrases' tokens
};

/// Returns all captions of these samples that have phrases, in the order of the samples, grouped as the settings say: by the
/// text tower's groups, or by k-means on the features of the tokens that cover text. If the tokens do not spell a caption, none
/// of them covers text or belongs to a phrase. Throws UserError if the tower has no groups, or no features of single tokens.
GroupedCaptions grouped_captions(const std::vector<EvaluationSample>& samples, const Embedder& embedder,
                                 const TokenGroupSettings& settings);

/// Splits the tokens that cover text into K consecutive pieces of equal length, a baseline grouping, [B, K, L].
at::Tensor equal_chunks(const GroupedCaptions& captions);

}  // namespace tessera
