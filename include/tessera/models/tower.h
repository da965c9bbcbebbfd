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

/// What an encoder passes to a read-out.
struct Encoded {
  at::Tensor tokens;  // [B, N, w]: patches in row-major order, text positions or groups; 0 where mask is false; without the class token
  at::Tensor mask;    // [B, N] bool, true for real tokens; undefined if all are real
  at::Tensor class_token;      // [B, w]; undefined if the encoder has none
  at::Tensor ids;              // [B, N] int64 token ids (text encoders), for read-outs that search for EOS
  at::Tensor attention;        // [B, N, M], weight of input position m in token n; undefined if tokens and input positions are the same
  config::Size grid = {0, 0};  // rows and columns of these images' patches; {0, 0} for other inputs
  at::Tensor other_tokens;     // tokens that encode_with() computes with another kind of last block; undefined if not requested

  /// Returns [B, 1 + N, w] with the class token first, or only the tokens if there is no class token.
  at::Tensor with_class_token() const;
  /// Returns the mask that belongs to the result of with_class_token(). In it, the class token counts as real.
  at::Tensor mask_with_class_token() const;
};

/// Maps pixels, regions or token ids to tokens.
class Encoder : public torch::nn::Module {
 public:
  /// Pixels must be normalized. Throws c10::Error for an input that the encoder does not accept.
  virtual Encoded encode(const TowerInput& input) = 0;
  /// Does the same as encode(). Also fills `other_tokens` with the tokens that the encoder computes if a block of the given kind replaces
  /// its last block. Throws UserError if the last block cannot be replaced.
  virtual Encoded encode_with(LastBlock kind, const TowerInput& input);
  /// If the encoder's final norm follows the pooling, applies it to the pooled vector [B, width] or to tokens [B, N, width]. Otherwise
  /// returns its argument unchanged.
  virtual at::Tensor final_norm(const at::Tensor& pooled) { return pooled; }
  /// Whether final_norm() does anything. If so, the read-out's vector must have the tokens' width.
  virtual bool norms_pooled() const { return false; }
  virtual std::int64_t width() const = 0;
  virtual Modality modality() const { return Modality::image; }
  virtual bool has_class_token() const { return false; }
  /// Whether the encoder only stands for vectors that are stored (EncodedImages::pooled), and cannot encode.
  virtual bool only_stored() const { return false; }
  /// Rows and columns of the token grid for images of the configured size; {0, 0} for text.
  virtual config::Size grid() const { return {0, 0}; }
  /// Rows and columns of the patches of images [B, 3, H, W]. A mask token can replace any of these patches (TowerInput::hidden). Throws
  /// UserError if the encoder has no mask token.
  virtual config::Size maskable_grid(const at::Tensor& pixels) const;
  /// Size of a patch, in pixels, for images of varying shapes (TowerInput::patches). Throws UserError naming the
  /// setting if the encoder does not accept such images.
  virtual config::Size patch_of_sequences() const;
  /// Width of the region features that the encoder accepts as an image view; 0: it accepts none.
  virtual std::int64_t region_width() const { return 0; }
  /// For a text encoder, these functions return the number of token ids, and the maximum number of tokens in a text.
  virtual std::int64_t vocab_size() const { return 0; }
  virtual std::int64_t context_length() const { return 0; }
  /// For a text encoder: its token table [V, w], for modules that share it (SharedParameters).
  virtual at::Tensor token_embedding() const { return {}; }
  /// Whether the encoder draws random numbers in training even if its parameters are frozen (patch dropout), so that an
  /// image is encoded differently each time.
  virtual bool draws_when_frozen() const { return false; }
  /// A parameter's depth between input and output, for layer decay: 0 before the blocks, i + 1 in block i (counted from 0), and depth()
  /// after the blocks.
  virtual std::int64_t depth_of(const std::string& /*parameter*/) const { return depth(); }
  virtual std::int64_t depth() const { return 0; }
  /// If `stored` can be resized to the shape that this encoder needs (position embeddings of another grid), returns the resized tensor.
  /// Otherwise returns `stored` unchanged.
  virtual at::Tensor adapt_weight(const std::string& /*name*/, const at::Tensor& stored) const { return stored; }
  /// Sets the type of the residual stream under autocast to bfloat16: float32, or bfloat16 for encoders that support it (vit).
  virtual void set_residual_type(at::ScalarType /*type*/) {}
};

/// The output of a read-out.
struct ReadOutOutput {
  at::Tensor embedding;  // [B, output_width]; undefined if this read-out has none
  at::Tensor slots;      // [B, S, Ds]; undefined if not requested or if there are none
  at::Tensor attention;  // [B, S, N], attention of each slot to each token; undefined if `slots` is undefined
};

/// Maps tokens to one vector (or slots). Padding never affects an output; a row without a real token is pooled to 0.
class ReadOut : public torch::nn::Module {
 public:
  /// Computes slots and their attention only if `needs` asks for them.
  virtual ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) = 0;
  virtual std::int64_t output_width() const = 0;
  /// Whether the read-out reads the tokens even if the encoder returns a class token. If this function returns false and there is a class
  /// token, EncodedImages need not store the tokens for the read-out.
  virtual bool reads_tokens() const { return true; }
  /// Maps the name of one of this module's parameters to its name in files (within the tower).
  virtual std::string state_dict_key(const std::string& parameter) const { return "readout." + parameter; }
  /// See Encoder::adapt_weight().
  virtual at::Tensor adapt_weight(const std::string& /*name*/, const at::Tensor& stored) const { return stored; }
};

/// Maps the encoder's width to the space that both towers share.
class Projection : public torch::nn::Module {
 public:
  /// Maps the read-out's vector: pooled [B, w] -> [B, D].
  virtual at::Tensor global(const at::Tensor& pooled) = 0;
  /// Maps tokens [B, N, w] -> [B, N, D], the features for token-level losses. By default, returns the tokens unchanged.
  virtual at::Tensor tokens(const at::Tensor& tokens) { return tokens; }
  /// Maps each token with the head that global() uses for the pooled vector: [B, N, w] -> [B, N, D].
  virtual at::Tensor dense(const at::Tensor& tokens) { return global(tokens); }
  virtual std::int64_t embed_dim() const = 0;
};

/// A tower consists of an encoder (which outputs tokens), a read-out (tokens -> vector) and a projection (-> shared space), each selected
/// by name.
struct TowerSettings {
  config::ModuleSettings encoder;
  config::ModuleSettings readout;
  config::ModuleSettings projection;
};

template <class Visitor>
void fields(Visitor& v, TowerSettings& s) {
  v("encoder", s.encoder, "what turns pixels or token ids into tokens");
  v("readout", s.readout, "what pools the tokens into one vector (or slots)");
  v("projection", s.projection, "what maps the read-out's vector to the space that both towers share");
}

/// One side of a dual encoder. It can also be used without the other side.
class Tower : public torch::nn::Module {
 public:
  /// `path` is the path of the settings in the configuration, such as "model.image", for error messages. Throws UserError if names,
  /// settings or their combination are wrong.
  Tower(const TowerSettings& settings, Modality modality, SharedParameters& shared, const std::string& path);

  /// If `input.encoded` (an earlier output of the encoder) is defined, it goes straight to the read-out, or to the projection if it is the
  /// read-out's. Otherwise the encoder processes `input`. Computes only the features that `needs` asks for; DualEncoder handles `needs.student` and `needs.input_ids`.
  TowerFeatures forward(const TowerInput& input, const ViewNeeds& needs = {});

  /// Returns what the projection maps to the embedding, EncodedImages::pooled, [B, w].
  at::Tensor pooled(const TowerInput& input);

  Encoder& encoder() { return *encoder_; }
  const Encoder& encoder() const { return *encoder_; }
  ReadOut& readout() { return *readout_; }
  Projection& projection() { return *projection_; }
  std::int64_t embed_dim() const { return projection_->embed_dim(); }

  /// Parameters and buffers, keyed by their names within the tower (OpenCLIP's, without `visual.`). The tensors share memory with the
  /// modules.
  std::map<std::string, at::Tensor> state_dict() const;
  /// If `stored` can be resized to the shape that this tower needs, returns the resized tensor. Otherwise returns `stored` unchanged.
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const;
  /// Returns, for each parameter of the encoder by its name within the tower, the number of layer-decay steps between the parameter and the
  /// output: the encoder's depth() minus the parameter's depth_of(). Parameters after the encoder are not listed: they have 0 steps.
  std::map<std::string, std::int64_t> blocks_behind() const;

 private:
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<ReadOut> readout_;
  std::shared_ptr<Projection> projection_;
};

/// Fills in all defaults and checks all names and settings. Throws UserError.
TowerSettings resolve(const TowerSettings& settings, const std::string& path);

}  // namespace tessera
