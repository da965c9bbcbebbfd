#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/nn/module.h>

#include <tessera/config/registry.h>
#include <tessera/features.h>

namespace tessera {

/// What an encoder gives to a read-out.
struct Encoded {
  at::Tensor tokens;       // [B, N, w]: patches row-major, or text positions; never the class token
  at::Tensor mask;         // [B, N] bool, true = real; undefined: all real
  at::Tensor class_token;  // [B, w]; undefined where the encoder has none
  at::Tensor ids;          // [B, N] int64 token ids (text encoders), for read-outs that look for EOS
};

/// Pixels or token ids in, tokens out.
class Encoder : public torch::nn::Module {
 public:
  /// input: pixels [B, 3, H, W] float (normalised), or ids [B, L] int64; mask [B, L] bool or undefined (text only).
  virtual Encoded encode(const at::Tensor& input, const at::Tensor& mask) = 0;
  virtual std::int64_t width() const = 0;
  /// Rows and columns of the token grid for pictures of the configured size; {0, 0} for text.
  virtual config::Size grid() const { return {0, 0}; }
};

/// Tokens in, one vector (or slots) out.
class ReadOut : public torch::nn::Module {
 public:
  /// returns [B, output_width]
  virtual at::Tensor read(const Encoded& encoded) = 0;
};

}  // namespace tessera
