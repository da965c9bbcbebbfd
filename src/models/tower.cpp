#include <functional>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/batch_norm.h"
#include "src/models/hidden_patches.h"
#include <tessera/base/error.h>
#include <tessera/models/registry.h>
#include <tessera/models/tower.h>

namespace tessera {
namespace {

const char* modality_name(Modality modality) {
  return modality == Modality::image ? "image" : "text";
}

void add_state(std::map<std::string, at::Tensor>& state, const torch::nn::Module& module,
               const std::function<std::string(const std::string&)>& rename) {
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const bool fresh = state.emplace(rename(name), tensor).second;
    TORCH_CHECK(fresh, "two parts of one tower have a tensor named ", rename(name));
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
}

}  // namespace

at::Tensor Encoded::with_class_token() const {
  return class_token.defined() ? at::cat({class_token.unsqueeze(1).to(tokens.scalar_type()), tokens}, 1) : tokens;
}

at::Tensor Encoded::mask_with_class_token() const {
  if (!mask.defined() || !class_token.defined()) return mask;
  return at::cat({at::ones({mask.size(0), 1}, mask.options()), mask}, 1);
}

Encoded Encoder::encode_with(LastBlock /*kind*/, const TowerInput& /*input*/) {
  user_error("last_block changes the last block of a vit, but this model's image encoder is not a vit: leave it plain");
}

config::Size Encoder::maskable_grid(const at::Tensor& /*pixels*/) const {
  user_error("the objective hides patches from the image encoder, but this one has no mask token: only a vit has one "
             "(model.image.encoder.mask_token: true)");
}

config::Size Encoder::patch_of_sequences() const {
  user_error("model.preprocessing.resize_mode: naflex gives images of varying shapes, which only a vit accepts: set "
             "model.image.encoder.name to vit, or another resize_mode");
}

TowerSettings resolve(const TowerSettings& settings, const std::string& path) {
  return {encoders().resolve(settings.encoder, path + ".encoder"),
          readouts().resolve(settings.readout, path + ".readout"),
          projections().resolve(settings.projection, path + ".projection")};
}

Tower::Tower(const TowerSettings& settings, Modality modality, SharedParameters& shared, const std::string& path) {
  encoder_ = encoders().make(settings.encoder, path + ".encoder");
  if (encoder_->modality() != modality)
    user_error(path, ".encoder: ", settings.encoder.name, " is an encoder of ", modality_name(encoder_->modality()),
               "s, but this is the ", modality_name(modality), " tower");
  if (const at::Tensor table = encoder_->token_embedding(); table.defined()) shared.token_embedding = table;
  const config::Size grid = encoder_->grid();
  ReadOutContext context;
  context.width = encoder_->width();
  context.tokens = grid.height * grid.width;
  context.grid = grid;
  context.class_token = encoder_->has_class_token();
  context.modality = modality;
  context.shared = &shared;
  context.path = path + ".readout";
  readout_ = readouts().make(settings.readout, context.path, context);
  projection_ =
      projections().make(settings.projection, path + ".projection",
                         {readout_->output_width(), encoder_->width(), modality, path + ".projection", &shared});
  if (readout_->output_width() != encoder_->width() && encoder_->norms_pooled())
    user_error(path, ".encoder.final_norm: pooled needs a read-out with the tokens' width ", encoder_->width(), ", but ",
               settings.readout.name, " has ", readout_->output_width(), ": use final_norm: none");
  register_module("encoder", encoder_);
  register_module("readout", readout_);
  register_module("projection", projection_);
  // The read-out's parameters may have names that belong to the encoder's final norm or to the projection.
  const auto refuse_in = [&](const torch::nn::Module& part, const char* setting, const char* remedy) {
    const auto parameters = part.named_parameters();
    for (const auto& item : readout_->named_parameters())
      if (const std::string name = readout_->state_dict_key(item.key()); parameters.contains(name))
        user_error(path, setting, settings.readout.name, " brings its own ", name, ": use ", remedy);
  };
  refuse_in(*encoder_, ".encoder.final_norm: ", "final_norm: none");
  refuse_in(*projection_, ".projection: ", "projection: none");
}

namespace {

// Returns the encoding of images that was stored earlier. `grid` is the patch grid of the configured image size. Tensors that were not
// stored are undefined.
Encoded encoded_before(const EncodedImages& images, config::Size grid) {
  const auto widened = [](const at::Tensor& tensor) { return tensor.defined() ? at_least_float(tensor) : tensor; };
  Encoded out;
  out.tokens = widened(images.tokens);
  out.class_token = widened(images.class_token);
  out.attention = widened(images.attention);
  out.grid = grid;
  return out;
}

Encoded encoded_for(Encoder& encoder, const TowerInput& input, const ViewNeeds& needs) {
  const bool other = needs.dense && needs.last_block != LastBlock::plain;
  if (!input.encoded.defined()) return other ? encoder.encode_with(needs.last_block, input) : encoder.encode(input);
  TORCH_CHECK(!other, "another last block needs images, not their encoded tokens");
  return encoded_before(input.encoded, encoder.grid());
}

}  // namespace

at::Tensor Tower::pooled(const TowerInput& input) {
  return encoder_->final_norm(readout_->forward(encoder_->encode(input), {}).embedding);
}

TowerFeatures Tower::forward(const TowerInput& given, const ViewNeeds& needs) {
  if (given.encoded.pooled.defined()) {
    TowerFeatures out;
    out.global = projection_->global(at_least_float(given.encoded.pooled));
    return out;
  }
  TowerInput input = given;
  if (needs.hidden.share > 0)
    input.hidden = draw_hidden_patches(needs.hidden, input.values().size(0), encoder_->maskable_grid(input.pixels),
                                       input.values().device());
  const Encoded encoded = encoded_for(*encoder_, input, needs);
  const ReadOutOutput pooled = readout_->forward(encoded, needs);
  TowerFeatures out;
  if (pooled.embedding.defined()) out.global = projection_->global(encoder_->final_norm(pooled.embedding));
  if (needs.slots) out.slots = pooled.slots;
  if (needs.attention) out.attention = pooled.attention;
  out.mask = encoded.mask;
  if (needs.boxes) out.boxes = input.boxes;
  out.grids = input.grids;
  if (needs.tokens) out.tokens = zero_padding(projection_->tokens(encoded.tokens), encoded.mask);
  if (needs.encoder_tokens) out.encoder_tokens = zero_padding(encoder_->final_norm(encoded.tokens), encoded.mask);
  const at::Tensor& patches = encoded.other_tokens.defined() ? encoded.other_tokens : encoded.tokens;
  if (needs.dense) {
    const RealRows real(encoded.mask.defined() ? encoded.mask : RealRows::now());
    out.dense = zero_padding(projection_->dense(patches), encoded.mask);
  }
  for (const auto& [name, extra] : needs.extras) out.extras[name] = extra.compute(input, encoded);
  return out;
}

std::map<std::string, at::Tensor> Tower::state_dict() const {
  std::map<std::string, at::Tensor> state;
  const auto same = [](const std::string& name) { return name; };
  add_state(state, *encoder_, same);
  add_state(state, *readout_, [this](const std::string& name) { return readout_->state_dict_key(name); });
  add_state(state, *projection_, same);
  return state;
}

at::Tensor Tower::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  for (const auto& item : readout_->named_parameters())
    if (readout_->state_dict_key(item.key()) == name) return readout_->adapt_weight(item.key(), stored);
  return encoder_->adapt_weight(name, stored);
}

std::map<std::string, std::int64_t> Tower::blocks_behind() const {
  std::map<std::string, std::int64_t> out;
  for (const auto& item : encoder_->named_parameters()) out[item.key()] = encoder_->depth() - encoder_->depth_of(item.key());
  return out;
}

}  // namespace tessera
