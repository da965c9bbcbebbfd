#pragma once

#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/models/small_models.h"
#include "tests/support/test_data.h"
#include <tessera/io/safetensors.h>
#include <tessera/models/registry.h>

namespace tessera {

/// A small model of make_timm.py and the settings of our encoder for it.
struct TimmCase {
  std::string name;
  std::string settings;
  bool norms_pooled = true;
};
inline void PrintTo(const TimmCase& c, std::ostream* out) {
  *out << c.name;
}

/// Loads the outputs that timm computed with a small model (tests/data/foreign/make_timm.py).
inline std::map<std::string, at::Tensor> timm_case(const std::string& name) {
  const auto tensors = io::load_safetensors(test_data("foreign/timm/" + name + ".safetensors")).tensors;
  return {tensors.begin(), tensors.end()};
}

/// Returns the tensors with names that start with `prefix`, with the prefix removed.
inline std::map<std::string, at::Tensor> below(const std::map<std::string, at::Tensor>& tensors,
                                               const std::string& prefix) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) out.emplace(name.substr(prefix.size()), tensor);
  return out;
}

/// Returns the module's parameters and buffers by name. They share memory with the module.
inline std::map<std::string, at::Tensor> state_of(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> out;
  for (const auto& item : module.named_parameters()) out.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) out.emplace(item.key(), item.value());
  return out;
}

/// Copies tensors into a module and switches it to evaluation mode. The names and shapes must match the module's exactly.
inline void load_exactly(torch::nn::Module& module, const std::map<std::string, at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> state = state_of(module);
  for (const auto& [name, tensor] : state) EXPECT_TRUE(tensors.contains(name)) << name << " is not one of timm's names";
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(state.contains(name)) << name << " is missing";
    ASSERT_EQ(state.at(name).sizes(), tensor.sizes()) << name;
    state.at(name).copy_(tensor);
  }
  module.eval();
}

inline std::shared_ptr<Encoder> encoder_of(const std::string& name, const std::string& yaml) {
  return encoders().make({name, settings(yaml)}, "encoder");
}

/// Returns the error for an encoder with these settings.
inline std::string settings_error(const std::string& name, const std::string& yaml) {
  return error_of([&] { encoder_of(name, yaml); });
}

inline Encoded encode(Encoder& encoder, const at::Tensor& pixels) {
  return encoder.encode(image_input(pixels));
}

/// Converts a map [B, w, H, W] to tokens [B, H * W, w].
inline at::Tensor tokens_of_map(const at::Tensor& map) {
  return map.flatten(2).transpose(1, 2);
}

/// Expects each row of a batch to have the same output as in a batch that holds only this row.
inline void expect_rows_alone(Encoder& encoder, const at::Tensor& pixels) {
  const at::NoGradGuard no_grad;
  const at::Tensor together = encode(encoder, pixels).tokens;
  for (std::int64_t row = 0; row < pixels.size(0); ++row)
    expect_close(encode(encoder, pixels.slice(0, row, row + 1)).tokens[0], together[row], 1e-5);
}

}  // namespace tessera
