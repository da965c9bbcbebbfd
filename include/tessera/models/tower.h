#pragma once

#include <map>
#include <memory>
#include <string>

#include <torch/nn/module.h>

#include <tessera/config/registry.h>
#include <tessera/features.h>
#include <tessera/models/shared_parameters.h>

namespace tessera {

enum class Modality { image, text };

/// What an encoder gives to a read-out.
struct Encoded {
  at::Tensor tokens;  // [B, N, w]: patches row-major, text positions or groups (0 where mask is false); never the class token
  at::Tensor mask;    // [B, N] bool, true = real; undefined: all real
  at::Tensor class_token;      // [B, w]; undefined where the encoder has none
  at::Tensor ids;              // [B, N] int64 token ids (text encoders), for read-outs that look for EOS
  at::Tensor attention;        // [B, N, M], the input positions that make up each token; undefined: token n is input n
  config::Size grid = {0, 0};  // rows and columns of the patches of these pictures; {0, 0} for other inputs
  at::Tensor other_tokens;     // [B, N, w] as `tokens`, but by another last block (Encoder::encode_with); undefined: nobody asked

  /// [B, 1 + N, w] with the class token first; the tokens alone where there is none.
  at::Tensor with_class_token() const;
  /// Its mask: the class token is real.
  at::Tensor mask_with_class_token() const;
};

/// Pixels, regions or token ids in, tokens out.
class Encoder : public torch::nn::Module {
 public:
  /// Pixels come normalized. Throws c10::Error for an input that the encoder does not take.
  virtual Encoded encode(const TowerInput& input) = 0;
  /// encode() with `other_tokens` by that last block. Throws UserError where the encoder has no such block to change.
  virtual Encoded encode_with(LastBlock kind, const TowerInput& input);
  /// What is left to do on the pooled vector [B, width], or on tokens [B, N, width] (the final norm, where it comes after
  /// pooling).
  virtual at::Tensor final_norm(const at::Tensor& pooled) { return pooled; }
  /// Whether final_norm() does anything, so that the read-out's vector must have the tokens' width.
  virtual bool norms_pooled() const { return false; }
  virtual std::int64_t width() const = 0;
  virtual Modality modality() const { return Modality::image; }
  virtual bool has_class_token() const { return false; }
  /// Rows and columns of the token grid for pictures of the configured size; {0, 0} for text.
  virtual config::Size grid() const { return {0, 0}; }
  /// Rows and columns of the patches that a mask token can take the place of (TowerInput::hidden) in pixels [B, 3, H, W]. Throws
  /// UserError where the encoder has no mask token.
  virtual config::Size maskable_grid(const at::Tensor& pixels) const;
  /// Pixels of a patch of images of their own shapes (TowerInput::patches). Throws UserError naming the setting where the
  /// encoder takes no such images.
  virtual config::Size patch_of_sequences() const;
  /// Width of the region features it takes as an image view; 0: none.
  virtual std::int64_t region_width() const { return 0; }
  /// Of a text encoder: number of token ids, and of tokens that a text may have.
  virtual std::int64_t vocab_size() const { return 0; }
  virtual std::int64_t context_length() const { return 0; }
  /// Of a text encoder: its table [V, w], for modules that share it (SharedParameters).
  virtual at::Tensor token_embedding() const { return {}; }
  /// Whether a row's output depends on that row alone, so that views may be encoded as one larger batch (batch norm in
  /// training: no).
  virtual bool rows_are_independent() const { return true; }
  /// Whether it draws random numbers in training even where its parameters are frozen (patch dropout), so that a picture
  /// is encoded otherwise each time.
  virtual bool draws_when_frozen() const { return false; }
  /// The place of a parameter on the way from input to output, for layer decay: 0 before the blocks, i + 1 in block i
  /// (from 0), depth() behind them.
  virtual std::int64_t depth_of(const std::string& /*parameter*/) const { return depth(); }
  virtual std::int64_t depth() const { return 0; }
  /// A stored tensor brought to this encoder's size where that is possible (position embeddings of another grid);
  /// otherwise the tensor as it is.
  virtual at::Tensor adapt_weight(const std::string& /*name*/, const at::Tensor& stored) const { return stored; }
};

/// What a read-out gives.
struct ReadOutOutput {
  at::Tensor embedding;  // [B, output_width]; undefined: this read-out gives none
  at::Tensor slots;      // [B, S, Ds]; undefined: not asked for, or there are none
  at::Tensor attention;  // [B, S, N]; likewise
};

/// Tokens in, one vector (or slots) out. What stands in a padded position never reaches an output; a row without a real
/// token is pooled to 0.
class ReadOut : public torch::nn::Module {
 public:
  /// Slots and their attention only where `needs` asks for them.
  virtual ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) = 0;
  virtual std::int64_t output_width() const = 0;
  /// Whether it looks at the tokens where the encoder gives a class token; if not, they need not be kept
  /// (EncodedPictures).
  virtual bool reads_tokens() const { return true; }
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

/// One side of a dual encoder; usable on its own.
class Tower : public torch::nn::Module {
 public:
  /// `path` is where the settings stand ("model.image"), for messages. Throws UserError when names, settings or their
  /// combination are wrong.
  Tower(const TowerSettings& settings, Modality modality, SharedParameters& shared, const std::string& path);

  /// input: as Encoder::encode takes it, or pictures that the encoder has seen before: these begin at the read-out. What
  /// `needs` does not ask for is not computed. `present` and `input` are the DualEncoder's business.
  TowerFeatures forward(const TowerInput& input, const ViewNeeds& needs = {});

  Encoder& encoder() { return *encoder_; }
  const Encoder& encoder() const { return *encoder_; }
  ReadOut& readout() { return *readout_; }
  Projection& projection() { return *projection_; }
  std::int64_t embed_dim() const { return projection_->embed_dim(); }

  /// Parameters and buffers by their names within the tower (OpenCLIP's, without `visual.`); shared with the modules.
  std::map<std::string, at::Tensor> state_dict() const;
  /// A stored tensor brought to this tower's size where that is possible.
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const;
  /// How many steps of layer decay a parameter (by its name within the tower) lies before the output: the encoder's
  /// depth() less the parameter's; 0 for what follows the blocks.
  std::int64_t blocks_behind(const std::string& name) const;

 private:
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<ReadOut> readout_;
  std::shared_ptr<Projection> projection_;
};

/// All defaults spelt out and all names and settings checked. Throws UserError.
TowerSettings resolve(const TowerSettings& settings, const std::string& path);

}  // namespace tessera
