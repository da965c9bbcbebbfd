#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder.h>

namespace tessera {

/// A caption and the annotated phrases in it.
struct PhrasedCaption {
  std::string text;
  std::vector<std::array<std::int64_t, 2>> phrases;  // the bytes of each phrase, [begin, end)
};

/// Returns the sample's captions that have annotated phrases, in the sample's order.
std::vector<PhrasedCaption> phrased_captions(const Sample& sample);

/// Captions with annotated phrases, and a model's grouping of their tokens.
struct GroupedCaptions {
  std::vector<std::size_t> sample;               // the index of each caption's sample
  std::vector<std::vector<std::string>> tokens;  // tokens of each caption, without padding
  std::vector<std::int64_t> spelled;  // for each caption, how many of its tokens cover text; 0 if the tokens do not spell the caption
  at::Tensor weights;                 // [B, K, L], the weight of each token in each group
  at::Tensor mask;                    // bool [B, L], true for tokens that cover text
  at::Tensor segments;                // bool [B, S, L], true for the tokens of each phrase
};

/// Returns all captions of these samples that have phrases, in the order of the samples. Depending on the settings, the text
/// tower's own groups are used, or the tokens that cover text are clustered by k-means on their features. If a caption's tokens
/// do not spell the caption, none of them counts as covering text or belonging to a phrase. Throws UserError if the text tower
/// has no groups or, for k-means, no features of single tokens.
GroupedCaptions grouped_captions(const std::vector<EvaluationSample>& samples, const Embedder& embedder,
                                 const TokenGroupSettings& settings);

/// Returns a baseline grouping, [B, K, L], which splits the tokens that cover text into K consecutive pieces of equal length.
at::Tensor equal_chunks(const GroupedCaptions& captions);

}  // namespace tessera
