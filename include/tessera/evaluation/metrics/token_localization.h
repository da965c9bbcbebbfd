#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera::metrics {

struct TokenLocalization {
  at::Tensor map;         // [B, rows, columns], of either sign
  at::Tensor normalized;  // [B, rows, columns], each image's map scaled to 0..1; all 0 if it is constant
};

/// Returns maps of where in an image a word is found (STAIR, section 5): each patch's raw activation, averaged over the word's
/// tokens. activations [B, P, Q] floating are TokenProjection::activations of the row-major patches for the word's Q >= 1 ids;
/// an id that occurs twice counts twice. Throws c10::Error if P is not rows * columns.
TokenLocalization token_localization(const at::Tensor& activations, const config::Size& grid);

}  // namespace tessera::metrics
