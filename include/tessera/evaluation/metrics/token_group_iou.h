#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns the row and column pairs of the matching with the greatest total value (Hungarian method, O(rows^2 columns)):
/// min(rows, columns) pairs, ordered by row. Each value[r][c] is finite.
std::vector<std::pair<std::int64_t, std::int64_t>> best_matching(const std::vector<std::vector<double>>& value);

struct TokenGroupScores {
  at::Tensor assignment;   // [B, L] int64, -1 for padding
  at::Tensor per_caption;  // [B, 4] double: IoU, precision, recall, F1; -1 if the caption has no phrase
  std::int64_t captions = 0;
  double iou = 0;
  double precision = 0;
  double recall = 0;
  double f1 = 0;
};

/// Measures how well groups of text tokens agree with annotated phrases. Each token belongs to its group of greatest weight
/// (the lower index at ties), and groups and phrases are matched for the greatest total IoU. Tokens outside all phrases do not
/// count. weights [B, K, L] float, text_mask [B, L] bool, segments [B, S, L] bool (a row without tokens is padding).
TokenGroupScores token_group_iou(const at::Tensor& weights, const at::Tensor& text_mask, const at::Tensor& segments);

}  // namespace tessera::metrics
