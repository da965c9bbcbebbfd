#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera::metrics {

struct TokenLocalization {
  at::Tensor map;         // [B, rows, columns]; values may be negative
  at::Tensor normalized;  // [B, rows, columns], each image's map scaled to 0..1; all 0 if it is constant
};

/// Returns maps that show where in an image a word is found (STAIR, section 5). A map holds each patch's raw activation, averaged
/// over the word's tokens. activations, floating-point [B, P, Q], are TokenProjection::activations of the P patches (row by row)
/// for the word's Q ids, Q at least 1; an id that occurs twice counts twice. Throws c10::Error if P is not rows * columns.
TokenLocalization token_localization(const at::Tensor& activations, const config::Size& grid);

}  // namespace tessera::metrics
