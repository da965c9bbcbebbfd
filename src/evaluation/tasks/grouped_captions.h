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

/// The sample's captions that have annotated phrases, in order.
std::vector<PhrasedCaption> phrased_captions(const Sample& sample);

/// Captions with annotated phrases, and how a model puts their tokens together.
struct GroupedCaptions {
  std::vector<std::size_t> sample;               // whose caption each is
  std::vector<std::vector<std::string>> tokens;  // of each caption, padding left out
  std::vector<std::int64_t> spelled;  // how many of them stand for text; 0: they spell something else than the caption
  at::Tensor weights;                 // [B, K, L], each group's of each token
  at::Tensor mask;                    // bool [B, L], tokens that stand for text
  at::Tensor segments;                // bool [B, S, L], the phrases' tokens
};

/// All captions of these samples that have phrases, one sample's after the other's, in groups as the settings say: those
/// of the text tower, or k-means clusters of the features of a caption's tokens that stand for text. Of a caption that
/// its tokens do not spell no token stands for text, and none is in a phrase. Throws UserError where the tower has no
/// groups, or no features of single tokens.
GroupedCaptions grouped_captions(const std::vector<EvaluationSample>& samples, const Embedder& embedder,
                                 const TokenGroupSettings& settings);

/// The same captions' tokens that stand for text in as many pieces of equal length that follow each other, [B, K, L].
at::Tensor equal_chunks(const GroupedCaptions& captions);

}  // namespace tessera
