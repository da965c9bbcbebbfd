#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns the matching of rows with columns that has the greatest total value, as min(rows, columns) pairs (row, column), ordered
/// by row. Uses the Hungarian method, O(rows^2 columns). Each value[r][c] must be finite.
std::vector<std::pair<std::int64_t, std::int64_t>> best_matching(const std::vector<std::vector<double>>& value);

struct TokenGroupScores {
  at::Tensor assignment;   // [B, L] int64, group of each token; -1 for padding
  at::Tensor per_caption;  // [B, 4] double: IoU, precision, recall, F1; -1 if the caption has no phrase
  std::int64_t captions = 0;
  double iou = 0;
  double precision = 0;
  double recall = 0;
  double f1 = 0;
};

/// Measures how well groups of text tokens agree with annotated phrases. Each token belongs to the group that has the greatest weight for
/// it (the lower group at ties). Groups are matched one to one with phrases such that the total IoU is greatest. Tokens outside all phrases
/// do not count. weights: float [B, K, L]. text_mask: bool [B, L]. segments: bool [B, S, L], which marks the tokens of each phrase; a row
/// without tokens is padding.
TokenGroupScores token_group_iou(const at::Tensor& weights, const at::Tensor& text_mask, const at::Tensor& segments);

}  // namespace tessera::metrics
