#pragma once

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include <tessera/models/dual_encoder.h>

namespace tessera {

inline config::Node settings(const std::string& yaml) {
  return config::parse_yaml(yaml, "test.yaml");
}

/// Returns a small model like SPARC's for images of 16 x 16 pixels.
inline ModelSettings small_sparc() {
  ModelSettings s;
  s.image = {{"vit", settings("{patch_size: 8, width: 12, layers: 2, heads: 3, class_token: false, pre_norm: false}")},
             {"gap"},
             {"adaptor", settings("{embed_dim: 6}")}};
  s.text = {{"text_transformer",
             settings("{context_length: 8, vocab_size: 20, width: 8, layers: 2, heads: 2, attention: bidirectional}")},
            {"gap"},
            {"adaptor", settings("{embed_dim: 6}")}};
  s.preprocessing.image_size = 16;
  return s;
}

/// Returns a small model like OpenCLIP's ViTs.
inline ModelSettings small_clip() {
  ModelSettings s;
  s.image = {{"vit", settings("{patch_size: 8, width: 12, layers: 2, heads: 3}")},
             {"cls"},
             {"linear", settings("{embed_dim: 6}")}};
  s.text = {{"text_transformer", settings("{context_length: 8, vocab_size: 20, width: 8, layers: 2, heads: 2}")},
            {"eos"},
            {"linear", settings("{embed_dim: 6}")}};
  s.preprocessing.image_size = 16;
  return s;
}

inline at::Tensor random_pixels(std::int64_t count, std::int64_t side = 16) {
  return at::randint(256, {count, 3, side, side}, at::kByte);
}

/// Returns the mask [B, length] of texts with these numbers of real tokens.
inline at::Tensor length_mask(std::vector<std::int64_t> lengths, std::int64_t length) {
  return at::arange(length).unsqueeze(0) < at::tensor(lengths).unsqueeze(1);
}

/// Returns how many numbers the module's parameters have.
inline std::int64_t numbers_in(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

inline void expect_close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-6) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance);
}

}  // namespace tessera
