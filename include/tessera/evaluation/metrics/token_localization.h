#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera::metrics {

struct TokenLocalization {
  at::Tensor map;         // [B, rows, columns], of any sign
  at::Tensor normalized;  // [B, rows, columns], each picture's map brought to 0..1; 0 throughout where it is constant
};

/// Where in a picture a word is (STAIR, section 5): the mean over the word's sub-words of each patch's raw activation.
/// activations [B, P, Q] floating, TokenProjection::activations of the patches, row-major, for the word's Q ids; Q at
/// least 1, an id that occurs twice counts twice. Throws c10::Error if P is not rows * columns.
TokenLocalization token_localization(const at::Tensor& activations, const config::Size& grid);

}  // namespace tessera::metrics
