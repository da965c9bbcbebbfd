#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <ATen/ATen.h>

#include "src/models/autocast.h"
#include "src/models/per_sample_rng.h"
#include "src/models/position_embedding.h"
#include "src/models/room.h"
#include "src/models/vit.h"
#include "src/ops/packed_weights.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

// A table for images with different grids. For each distinct grid it has `prefix` rows and then one row for each patch.
// Each token takes the row for its position in its image's grid.
struct GridTable {
  std::vector<config::Size> grids;
  at::Tensor rows;  // int64: for each real token, image after image, the index of the token's row in this table

  /// Returns one row for each real token of the batch. For a grid of P patches, `part(grid)` must return the grid's rows [prefix + P, ...].
  template <class Part>
  at::Tensor of_tokens(const Part& part) const {
    std::vector<at::Tensor> parts;
    for (const config::Size grid : grids) parts.push_back(part(grid));
    return at::embedding(at::cat(parts), rows);
  }
};

GridTable grid_table(const at::Tensor& grids, std::int64_t prefix, const at::Device& device) {
  GridTable out;
  std::map<std::array<std::int64_t, 2>, std::int64_t> first_rows;
  std::int64_t table = 0;
  std::vector<std::int64_t> rows;
  const auto sides = grids.accessor<std::int64_t, 2>();
  for (std::int64_t image = 0; image < grids.size(0); ++image) {
    const config::Size grid(sides[image][0], sides[image][1]);
    const std::int64_t tokens = prefix + grid.height * grid.width;
    const auto [first, is_new] = first_rows.emplace(std::array{grid.height, grid.width}, table);
    if (is_new) {
      out.grids.push_back(grid);
      table += tokens;
    }
    for (std::int64_t token = 0; token < tokens; ++token) rows.push_back(first->second + token);
  }
  out.rows = at::tensor(rows, at::kLong).to(device, /*non_blocking=*/true);
  return out;
}

void check_sequences(const TowerInput& input, std::int64_t values) {
  const at::Tensor &patches = input.patches, &mask = input.mask, &grids = input.grids;
  TORCH_CHECK(patches.dim() == 3 && patches.size(2) == values && patches.is_floating_point(),
              "vit: patches must be floating [B, T, ", values, "], got ", patches.scalar_type(), " ", patches.sizes());
  TORCH_CHECK(mask.defined() && mask.scalar_type() == at::kBool && mask.sizes() == patches.sizes().slice(0, 2),
              "vit: patches need a mask, bool ", patches.sizes().slice(0, 2));
  TORCH_CHECK(grids.defined() && grids.is_cpu() && grids.scalar_type() == at::kLong && grids.dim() == 2 &&
                  grids.size(0) == patches.size(0) && grids.size(1) == 2,
              "vit: patches need grids, int64 [", patches.size(0), ", 2] on the CPU");
  if (!mask.is_cpu()) return;
  const at::Tensor places = at::arange(mask.size(1)).unsqueeze(0);
  TORCH_CHECK(mask.equal(places < grids.prod(1, /*keepdim=*/true)),
              "vit: the mask of patches must be true for exactly an image's first rows * columns patches");
}

}  // namespace

std::optional<config::Problem> validate(const VitSettings& s) {
  const config::Size image = s.image_size, patch = s.patch_size;
  if (patch.height < 1 || patch.width < 1) return config::Problem{"patch_size", "must be at least 1"};
  if (image.height < 1 || image.width < 1) return config::Problem{"image_size", "must be at least 1"};
  if (s.registers > kMostTokens) return config::Problem{"registers", concat("is ", s.registers, ", more than ", kMostTokens)};
  if (!s.partial_patches && has_partial_patches(s)) {
    const std::int64_t rows = std::max<std::int64_t>(1, image.height / patch.height);
    const std::int64_t columns = std::max<std::int64_t>(1, image.width / patch.width);
    return config::Problem{
        "image_size", concat(image.height, " x ", image.width, " is not a multiple of patch_size ", patch.height, " x ",
                             patch.width, ": try [", rows * patch.height, ", ", columns * patch.width, "]")};
  }
  if (s.regions && s.regions->first_block > s.layers)
    return config::Problem{"regions",
                           concat("first_block is ", s.regions->first_block, ", but there are ", s.layers, " layers")};
  if (s.regions && s.regions->class_token == "shared" && !s.class_token)
    return config::Problem{"regions", "class_token: shared, but the encoder has no class_token"};
  if (s.leff) {
    if (s.leff->layers > s.layers)
      return config::Problem{"leff", concat("layers is ", s.leff->layers, ", but there are ", s.layers, " in all")};
    if (s.regions && s.regions->first_block < s.leff->layers)
      return config::Problem{"regions", concat("first_block is ", s.regions->first_block,
                                               ", but regions have no grid and cannot go through the first ",
                                               s.leff->layers, " blocks, which have leff")};
    if (s.patch_dropout > 0)
      return config::Problem{"patch_dropout",
                             "leff needs the complete grid of patches: set one of the two to its default"};
    if (s.leff->norm == "batch" && s.grad_checkpointing)
      return config::Problem{
          "grad_checkpointing",
          "computes blocks twice, so leff's batch norms would update their statistics twice: set leff.norm to "
          "none, or this to false"};
  }
  if (s.stem != "patch" && patch != config::Size(PatchStem::kStride)) return config::Problem{"stem", concat(s.stem, " makes patches of 16 pixels")};
  if (s.stem == "mobileclip" && s.width % 4 != 0) return config::Problem{"stem", "mobileclip needs a width that is a multiple of 4"};
  if (s.partial_patches && (image.height < patch.height || image.width < patch.width || s.stem != "patch"))
    return config::Problem{"partial_patches", "needs images of at least one patch, and the stem patch"};
  if (s.rotary && s.regions)
    return config::Problem{"rotary", "regions have no grid and so no rotary positions: set one of the two to null"};
  if (const auto problem = validate(static_cast<const TransformerSettings&>(s))) return problem;
  if (s.rotary && head_width(s) % 4 != 0)
    return config::Problem{"rotary", concat("turns channels in fours, but heads are ", head_width(s), " wide")};
  return std::nullopt;
}

bool has_partial_patches(const VitSettings& s) {
  return s.image_size.height % s.patch_size.height != 0 || s.image_size.width % s.patch_size.width != 0;
}

Vit::Vit(const VitSettings& settings) : settings_(settings) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(settings.width));
  const config::Size patch = settings.patch_size;
  const std::int64_t patches = grid().height * grid().width;
  if (settings.stem == "mobileclip")
    stem_ = std::make_shared<ConvStem>(settings.width);
  else if (settings.stem == "vitamin")
    stem_ = std::make_shared<VitaminStem>(settings.stem_widths, settings.width);
  if (stem_)
    register_module("conv1", stem_);
  else
    conv1_ = register_module("conv1",
                           torch::nn::Conv2d(torch::nn::Conv2dOptions(3, settings.width, {patch.height, patch.width})
                                                 .stride({patch.height, patch.width})
                                                 .bias(settings.patch_bias)));
  if (settings.class_token)
    class_embedding_ = register_parameter("class_embedding", scale * at::randn({settings.width}));
  if (settings.registers > 0)
    register_embedding_ =
        register_parameter("register_embedding", scale * at::randn({settings.registers, settings.width}));
  if (settings.mask_token) mask_token_ = register_parameter("mask_token", at::zeros({settings.width}));
  if (settings.position_embedding == "learned") {
    positional_embedding_ =
        register_parameter("positional_embedding", scale * at::randn({positioned() + patches, settings.width}));
  }
  if (settings.pre_norm)
    ln_pre_ = register_module("ln_pre", std::make_shared<LayerNorm>(settings.width, settings.norm_eps, settings.norm));
  const auto leff = [&](std::int64_t block) -> std::shared_ptr<FeedForward> {
    if (!settings.leff || block >= settings.leff->layers) return nullptr;
    return std::make_shared<Leff>(*settings.leff, settings.width, mlp_width(settings), settings.activation);
  };
  transformer_ =
      register_module("transformer", std::make_shared<Transformer>(settings, BlockInitialization::image, leff));
  if (settings.final_norm != "none")
    ln_post_ = register_module("ln_post", std::make_shared<LayerNorm>(settings.width, settings.norm_eps, settings.norm));
  if (settings.regions)
    region_tokens_ = std::make_unique<RegionTokens>(*settings.regions, settings.width, settings.class_token,
                                                    class_embedding_, *this);
}

Encoded Vit::encode(const TowerInput& input) {
  if (input.regions.defined()) return encode_regions(input.regions, input.mask);
  TORCH_CHECK(input.pixels.defined() || input.patches.defined(), "vit: takes images or regions");
  const Embedded embedded = input.patches.defined() ? embed_patches(input) : embed(input);
  return encoded(transformer_->run(embedded.tokens, embedded.sequence), embedded);
}

Encoded Vit::encode_with(LastBlock kind, const TowerInput& input) {
  if (input.patches.defined())
    user_error("last_block changes how the patches of one grid attend, but images of varying shapes "
               "(model.preprocessing.resize_mode: naflex) have several: leave it plain");
  TORCH_CHECK(input.pixels.defined(), "vit: another last block needs images");
  if (settings_.layers == 0) user_error("last_block changes the last block of a vit, but this model's vit has no blocks");
  if (settings_.block_norm != "before") user_error("last_block needs blocks with block_norm: before, but this model's is ", settings_.block_norm);
  const Embedded embedded = embed(input);
  const auto [plain, other] = transformer_->forward_both(embedded.tokens, embedded.sequence, kind);
  Encoded out = encoded({plain, {}}, embedded);
  out.other_tokens = (ln_post_ ? ln_post_->forward(other) : other).slice(1, prefix());
  return out;
}

at::Tensor Vit::patch_embedding(const at::Tensor& image) {
  const bool as_map = image.is_cuda() || PackedWeights::in_scope();
  if (stem_ || !as_map) return (stem_ ? stem_->forward(image) : conv1_(image)).flatten(2).transpose(1, 2);
  // Computes the convolution as a linear map of the patches: on a GPU this takes much less time than cuDNN's convolution, and on the CPU the
  // map can use packed weights.
  const config::Size patch = settings_.patch_size;
  const std::int64_t rows = image.size(2) / patch.height, columns = image.size(3) / patch.width;
  const at::Tensor patches = image.slice(2, 0, rows * patch.height)
                                 .slice(3, 0, columns * patch.width)
                                 .reshape({image.size(0), 3, rows, patch.height, columns, patch.width})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({image.size(0), rows * columns, 3 * patch.height * patch.width});
  return map_patches(patches);
}

at::Tensor Vit::map_patches(const at::Tensor& patches) const {
  const at::Tensor packed = PackedWeights::map(patches, conv1_->weight, conv1_->bias);
  return packed.defined() ? packed : at::linear(patches, conv1_->weight.flatten(1), conv1_->bias);
}

Vit::Embedded Vit::embed(const TowerInput& input) {
  const at::Tensor& image = input.pixels;
  const config::Size patch = settings_.patch_size;
  TORCH_CHECK(image.dim() == 4 && image.size(1) == 3 && image.size(2) >= patch.height && image.size(3) >= patch.width &&
                  (settings_.partial_patches || (image.size(2) % patch.height == 0 && image.size(3) % patch.width == 0)),
              "vit: images must be [B, 3, H, W] with H and W multiples of ", patch.height, " and ", patch.width,
              ", got ", image.sizes());
  const config::Size grid(image.size(2) / patch.height, image.size(3) / patch.width);
  at::Tensor x = patch_embedding(image);  // [B, P, w]
  // A convolution gives the patches a transposed layout. Without this copy, the residual stream would keep that layout through all blocks,
  // and every norm would have to copy its input.
  x = with_prefix(with_mask_token(x, input.hidden)).contiguous();
  if (positional_embedding_.defined()) x = x + positions_of(grid);
  SequenceInfo sequence;
  sequence.prefix = prefix();
  if (settings_.rotary) sequence.rotation = rotation(grid, x);
  const bool drops = is_training() && settings_.patch_dropout > 0;
  if (drops) x = drop_patches(x, sequence.rotation);
  else sequence.grid = grid;
  return {start_stream(x), sequence, grid};
}

at::Tensor Vit::start_stream(const at::Tensor& tokens) {
  if (residual_type_ == at::kBFloat16 && autocast_type(tokens) == at::kBFloat16) {
    const at::Tensor x = tokens.to(at::kBFloat16);
    return ln_pre_ ? ln_pre_->forward(ResidualStream{x, {}}).to(at::kBFloat16) : x;
  }
  return ln_pre_ ? ln_pre_->forward(tokens) : at_least_float(tokens);
}

Vit::Embedded Vit::embed_patches(const TowerInput& input) {
  const config::Size patch = patch_of_sequences();
  check_sequences(input, 3 * patch.height * patch.width);
  const at::Device device = input.patches.device();
  const std::int64_t images = input.patches.size(0), patches = input.patches.size(1);
  at::Tensor x = map_patches(zero_padding(input.patches, input.mask));  // [B, T, w]
  x = with_prefix(x);
  const at::Tensor real = at::cat({at::ones({images, prefix()}, input.mask.options()), input.mask}, 1);
  Embedded out;
  out.mask = input.mask;
  PackedRows& rows = out.sequence.mask.packed;
  rows = packed_rows(real, input.grids.prod(1) + prefix());
  if (rows.defined()) x = pack(x, rows);
  const GridTable table = grid_table(input.grids, prefix(), device);
  const auto shaped = [&](const at::Tensor& of_tokens) {  // one row per token -> [images, tokens per image, ...]; packed tokens stay flat
    return rows.defined() ? of_tokens : of_tokens.unflatten(0, {images, prefix() + patches});
  };
  if (positional_embedding_.defined())
    x = x + shaped(table.of_tokens([&](config::Size grid) { return positions_of(grid); }));
  if (settings_.rotary) {
    out.sequence.rotation = rotation_with_prefix(grid(), device);
    out.sequence.rotation.cosine = shaped(table.of_tokens([&](config::Size grid) { return rotation_with_prefix(grid, device).cosine; }));
    out.sequence.rotation.sine = shaped(table.of_tokens([&](config::Size grid) { return rotation_with_prefix(grid, device).sine; }));
  }
  out.sequence.prefix = prefix();
  out.tokens = start_stream(x);
  return out;
}

at::Tensor Vit::positions_of(config::Size grid) const {
  const bool any = grid.height * grid.width > 0;  // false if the grid is empty because the sample lacks this image
  const at::Tensor positions = any ? resize_position_embedding(positional_embedding_, grid, this->grid(), positioned(),
                                                               settings_.position_resampling)
                                   : positional_embedding_.slice(0, 0, positioned());
  const std::int64_t bare = prefix() - positioned();  // number of prefix tokens without a position embedding
  if (bare == 0) return positions;
  const at::Tensor none = at::zeros({bare, positions.size(1)}, positions.options());
  return at::cat({positions.slice(0, 0, positioned()), none, positions.slice(0, positioned())});
}

Rotation Vit::rotation_with_prefix(config::Size grid, const at::Device& device) const {
  Rotation out = rotation_of_grid(*settings_.rotary, grid, head_width(settings_), 0, device);
  out.cosine = at::constant_pad_nd(out.cosine, {0, 0, prefix(), 0}, 1);
  out.sine = at::constant_pad_nd(out.sine, {0, 0, prefix(), 0}, 0);
  return out;
}

config::Size Vit::patch_of_sequences() const {
  const auto refuse = [](const std::string& setting, const std::string& way_out) {
    user_error("model.image.encoder.", setting, " does not support images of varying shapes (model.preprocessing.resize_mode: naflex): ",
               way_out);
  };
  if (stem_) refuse("stem", "set it to patch");
  if (settings_.leff) refuse("leff", "set it to null");
  if (settings_.patch_dropout > 0) refuse("patch_dropout", "set it to 0");
  if (settings_.rotary && augments(*settings_.rotary)) refuse("rotary", "set its shift, jitter and rescale to null");
  return settings_.patch_size;
}

// A frozen encoder's rotation is not augmented, because that would only make its features vary from step to step.
Rotation Vit::rotation(config::Size grid, const at::Tensor& x) const {
  const RotarySettings& rotary = *settings_.rotary;
  const auto is_trained = [&] {
    return std::ranges::any_of(parameters(), [](const at::Tensor& parameter) { return parameter.requires_grad(); });
  };
  if (augments(rotary) && is_training() && is_trained())
    return drawn_rotation_of_grid(rotary, grid, head_width(settings_), prefix(), x.device(), x.size(0));
  return rotation_of_grid(rotary, grid, head_width(settings_), prefix(), x.device());
}

std::int64_t Vit::positioned() const {
  if (settings_.prefix_positions == "all") return prefix();
  return settings_.prefix_positions == "class_token" && settings_.class_token ? 1 : 0;
}

at::Tensor Vit::with_mask_token(const at::Tensor& patches, const at::Tensor& hidden) const {
  if (!hidden.defined()) return patches;
  TORCH_CHECK(mask_token_.defined() && hidden.sizes() == patches.sizes().slice(0, 2), "vit: hidden patches must be [B, P] = ",
              patches.sizes().slice(0, 2), " of a model with a mask token, got ", hidden.sizes());
  return at::where(hidden.unsqueeze(2), mask_token_.to(patches.scalar_type()), patches);
}

config::Size Vit::maskable_grid(const at::Tensor& pixels) const {
  if (!settings_.mask_token)
    user_error("the objective hides patches from the image encoder: set model.image.encoder.mask_token to true");
  if (settings_.patch_dropout > 0)
    user_error("model.image.encoder.patch_dropout: the objective hides patches, and dropped ones cannot be predicted: set it to 0");
  if (!pixels.defined())
    user_error("the objective hides patches of images of one size, but model.preprocessing.resize_mode: naflex gives images of "
               "varying shapes: set another one");
  return {pixels.size(2) / settings_.patch_size.height, pixels.size(3) / settings_.patch_size.width};
}

// Prepends the class token and registers to patches: [B, P, w] -> [B, prefix + P, w].
at::Tensor Vit::with_prefix(const at::Tensor& patches) const {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& token : {class_embedding_, register_embedding_})
    if (token.defined())
      parts.push_back(token.expand({patches.size(0), token.dim() == 1 ? 1 : token.size(0), -1}).to(patches.scalar_type()));
  if (parts.empty()) return patches;
  parts.push_back(patches);
  return at::cat(parts, 1);
}

Encoded Vit::encoded(const ResidualStream& last, const Embedded& embedded) {
  at::Tensor x = settings_.final_norm == "tokens" ? ln_post_->forward(last) : at_least_float(residual_sum(last));
  const PackedRows& rows = embedded.sequence.mask.packed;
  if (rows.defined()) x = unpack(x, rows);
  Encoded out;
  out.tokens = x.slice(1, prefix());
  if (settings_.class_token) out.class_token = x.select(1, 0);
  out.grid = embedded.grid;
  out.mask = embedded.mask;
  return out;
}

Encoded Vit::encode_regions(const at::Tensor& regions, const at::Tensor& mask) {
  TORCH_CHECK(region_tokens_, "vit: got region features, but the encoder has no setting `regions`");
  const auto [embedded, real] = region_tokens_->forward(regions, mask, ln_pre_.get());
  SequenceInfo sequence;
  sequence.mask = self_attention_mask(real, embedded.size(1));
  sequence.prefix = settings_.class_token ? 1 : 0;
  const ResidualStream last = transformer_->run(embedded, sequence, settings_.regions->first_block);
  const at::Tensor x = settings_.final_norm == "tokens" ? ln_post_->forward(last) : residual_sum(last);
  Encoded out;
  out.tokens = zero_padding(settings_.class_token ? x.slice(1, 1) : x, mask);
  if (settings_.class_token) out.class_token = x.select(1, 0);
  out.mask = mask;
  return out;
}

std::int64_t Vit::depth_of(const std::string& parameter) const {
  if (const auto block = Transformer::block_of(parameter)) return *block + 1;
  if (parameter.starts_with("roi_")) return settings_.regions->first_block;
  return parameter.starts_with("ln_post") ? depth() : 0;
}

// Drops random patches. The remaining patches keep their order and their rotation. Tokens before the patches are never
// dropped.
at::Tensor Vit::drop_patches(const at::Tensor& x, Rotation& rotation) const {
  const std::int64_t first = prefix(), batch = x.size(0), patches = x.size(1) - first;
  const auto kept = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(patches) * (1 - settings_.patch_dropout)));
  const at::Tensor numbers = row_random_int(batch, patches, x.device());
  const at::Tensor chosen = std::get<0>(std::get<1>(numbers.topk(kept, 1)).sort(1));  // [B, kept]
  const at::Tensor some = x.slice(1, first).gather(1, chosen.unsqueeze(2).expand({-1, -1, x.size(2)}));
  const auto kept_of = [&](const at::Tensor& of_patches) {  // [N, d / 2] or [B, N, d / 2] -> [B, kept, d / 2]
    if (of_patches.dim() == 2) return at::embedding(of_patches, chosen);
    return of_patches.gather(1, chosen.unsqueeze(2).expand({-1, -1, of_patches.size(2)}));
  };
  if (rotation.defined()) {
    rotation.cosine = kept_of(rotation.cosine);
    rotation.sine = kept_of(rotation.sine);
  }
  return first == 0 ? some : at::cat({x.narrow(1, 0, first), some}, 1);
}

at::Tensor Vit::final_norm(const at::Tensor& pooled) {
  return settings_.final_norm == "pooled" ? ln_post_->forward(pooled) : pooled;
}

config::Size Vit::grid() const {
  return {settings_.image_size.height / settings_.patch_size.height,
          settings_.image_size.width / settings_.patch_size.width};
}

at::Tensor Vit::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  if (name != "positional_embedding") return stored;
  return fit_position_embedding(stored, grid(), positioned(), settings_.width,
                                settings_.position_resampling);
}

}  // namespace tessera
