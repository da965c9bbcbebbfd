#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Row and column pairs of a matching with the greatest total value (Hungarian method, O(rows^2 columns)): min(rows,
/// columns) pairs, by row. value[r][c] finite.
std::vector<std::pair<std::int64_t, std::int64_t>> best_matching(const std::vector<std::vector<double>>& value);

struct TokenGroupScores {
  at::Tensor assignment;   // [B, L] int64, -1: padding
  at::Tensor per_caption;  // [B, 4] double: IoU, precision, recall, F1; -1: no phrase
  std::int64_t captions = 0;
  double iou = 0;
  double precision = 0;
  double recall = 0;
  double f1 = 0;
};

/// How well groups of text tokens agree with annotated phrases: each token goes to its group of greatest weight (lower
/// index at ties), groups and phrases are matched for the greatest total IoU. Tokens outside every phrase count
/// nowhere. weights [B, K, L] float, text_mask [B, L] bool, segments [B, S, L] bool (a row without tokens is no
/// phrase).
TokenGroupScores token_group_iou(const at::Tensor& weights, const at::Tensor& text_mask, const at::Tensor& segments);

}  // namespace tessera::metrics
