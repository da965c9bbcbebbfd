#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera::metrics {

/// Returns the matching of rows with columns that has the greatest total value, as min(rows, columns) pairs (row, column), ordered
/// by row. Uses the Hungarian method, O(rows^2 columns). Each value[r][c] must be finite.
std::vector<std::pair<std::int64_t, std::int64_t>> best_matching(const std::vector<std::vector<double>>& value);

struct TokenGroupScores {
  at::Tensor assignment;   // [B, L] int64, group of each token; -1 for padding
  at::Tensor per_caption;  // [B, 4] double: IoU, precision, recall, F1; -1 if the caption has no phrase
};

/// Measures how well groups of text tokens agree with annotated phrases. Each token belongs to the group that has the greatest weight for
/// it (the lower group at ties). Groups are matched one to one with phrases such that the total IoU is greatest. Tokens outside all phrases
/// do not count. weights: float [B, K, L]. text_mask: bool [B, L]. segments: bool [B, S, L], which marks the tokens of each phrase; a row
/// without tokens is padding.
TokenGroupScores token_group_iou(const at::Tensor& weights, const at::Tensor& text_mask, const at::Tensor& segments);

/// Returns the Grad-CAM map (Selvaraju et al. 2017, eq. 1 and 2). At each position it is the weighted sum of the channels, where a
/// channel's weight is its gradient averaged over the positions; negative sums become 0. features and gradients: floating-point [B, N, w].
/// The result is [B, N]. Throws c10::Error if the shapes do not match.
at::Tensor grad_cam(const at::Tensor& features, const at::Tensor& gradients);

struct TokenLocalization {
  at::Tensor map;         // [B, rows, columns]; values may be negative
  at::Tensor normalized;  // [B, rows, columns], each image's map scaled to 0..1; all 0 if it is constant
};

/// Returns maps that show where in an image a word is found (STAIR, section 5). A map holds each patch's raw activation, averaged
/// over the word's tokens. activations, floating-point [B, P, Q], are TokenProjection::activations of the P patches (row by row)
/// for the word's Q ids, Q at least 1; an id that occurs twice counts twice. Throws c10::Error if P is not rows * columns.
TokenLocalization token_localization(const at::Tensor& activations, const config::Size& grid);

}  // namespace tessera::metrics
