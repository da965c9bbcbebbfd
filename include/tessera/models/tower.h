#pragma once

#include <map>
#include <memory>
#include <string>

#include <torch/nn/module.h>

#include <tessera/config/registry.h>
#include <tessera/features.h>

namespace tessera {

enum class Modality { image, text };

/// What an encoder gives to a read-out.
struct Encoded {
  at::Tensor tokens;  // [B, N, w]: patches row-major, or text positions (0 where mask is false); never the class token
  at::Tensor mask;    // [B, N] bool, true = real; undefined: all real
  at::Tensor class_token;  // [B, w]; undefined where the encoder has none
  at::Tensor ids;          // [B, N] int64 token ids (text encoders), for read-outs that look for EOS
};

/// Pixels or token ids in, tokens out.
class Encoder : public torch::nn::Module {
 public:
  /// input: pixels [B, 3, H, W] float (normalized), or ids [B, L] int64; mask [B, L] bool or undefined (text only).
  virtual Encoded encode(const at::Tensor& input, const at::Tensor& mask) = 0;
  /// What is left to do on the pooled vector [B, width] (the final norm, where it comes after pooling).
  virtual at::Tensor final_norm(const at::Tensor& pooled) { return pooled; }
  virtual std::int64_t width() const = 0;
  virtual Modality modality() const { return Modality::image; }
  virtual bool has_class_token() const { return false; }
  /// Rows and columns of the token grid for pictures of the configured size; {0, 0} for text.
  virtual config::Size grid() const { return {0, 0}; }
  /// A stored tensor brought to this encoder's size where that is possible (position embeddings of another grid);
  /// otherwise the tensor as it is.
  virtual at::Tensor adapt_weight(const std::string& /*name*/, const at::Tensor& stored) const { return stored; }
};

/// What a read-out gives.
struct ReadOutOutput {
  at::Tensor embedding;  // [B, output_width]; undefined: this read-out gives none
  at::Tensor slots;      // [B, S, Ds]; undefined where there are none
  at::Tensor attention;  // [B, S, N]; undefined where there is none
};

/// Tokens in, one vector (or slots) out. What stands in a padded position never reaches an output; a row without a real
/// token is pooled to 0.
class ReadOut : public torch::nn::Module {
 public:
  virtual ReadOutOutput forward(const Encoded& encoded) = 0;
  virtual std::int64_t output_width() const = 0;
  /// The name in files of one of this module's own parameters, within its tower.
  virtual std::string state_dict_key(const std::string& parameter) const { return "readout." + parameter; }
  /// As Encoder::adapt_weight.
  virtual at::Tensor adapt_weight(const std::string& /*name*/, const at::Tensor& stored) const { return stored; }
};

/// From the encoder's width to the space that both towers share.
class Projection : public torch::nn::Module {
 public:
  /// pooled [B, w] -> [B, D].
  virtual at::Tensor global(const at::Tensor& pooled) = 0;
  /// tokens [B, N, w] -> [B, N, D], what a token-level loss sees.
  virtual at::Tensor tokens(const at::Tensor& tokens) = 0;
  /// tokens [B, N, w] -> [B, N, D], through the same head as the pooled vector.
  virtual at::Tensor dense(const at::Tensor& tokens) = 0;
  virtual std::int64_t embed_dim() const = 0;
};

/// A tower = encoder (tokens out) + read-out (tokens -> vector) + projection (-> shared space), each chosen by name.
struct TowerSettings {
  config::ModuleSettings encoder;
  config::ModuleSettings readout;
  config::ModuleSettings projection;
};

template <class Visitor>
void fields(Visitor& v, TowerSettings& s) {
  v("encoder", s.encoder, "what turns pixels or token ids into tokens");
  v("readout", s.readout, "what turns the tokens into one vector (or slots)");
  v("projection", s.projection, "from the encoder's width into the space that both towers share");
}

/// What a tower gives. Undefined: not asked for, or not produced by this tower. Nothing is normalized.
struct TowerOutput {
  at::Tensor global;     // [B, D]
  at::Tensor tokens;     // [B, N, D], 0 where mask is false
  at::Tensor mask;       // [B, N] bool, or undefined
  at::Tensor dense;      // [B, N, D], 0 where mask is false
  at::Tensor slots;      // [B, S, Ds]
  at::Tensor attention;  // [B, S, N]
};

/// One side of a dual encoder; usable on its own.
class Tower : public torch::nn::Module {
 public:
  /// `path` is where the settings stand ("model.image"), for messages. Throws UserError when names, settings or their
  /// combination are wrong.
  Tower(const TowerSettings& settings, Modality modality, const std::string& path);

  /// input, mask: as Encoder::encode. `tokens` and `dense` are computed only when asked for.
  TowerOutput forward(const at::Tensor& input, const at::Tensor& mask, bool with_tokens = false,
                      bool with_dense = false);

  Encoder& encoder() { return *encoder_; }
  const Encoder& encoder() const { return *encoder_; }
  ReadOut& readout() { return *readout_; }
  Projection& projection() { return *projection_; }
  std::int64_t embed_dim() const { return projection_->embed_dim(); }

  /// Parameters and buffers by their names within the tower (OpenCLIP's, without `visual.`); shared with the modules.
  std::map<std::string, at::Tensor> state_dict() const;
  /// A stored tensor brought to this tower's size where that is possible.
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const;

 private:
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<ReadOut> readout_;
  std::shared_ptr<Projection> projection_;
};

/// All defaults spelt out and all names and settings checked. Throws UserError.
TowerSettings resolve(const TowerSettings& settings, const std::string& path);

}  // namespace tessera
