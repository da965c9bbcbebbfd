#include <cmath>

#include "src/models/modified_resnet.h"
#include "src/foreign/open_clip.h"
#include "src/models/text_transformer.h"
#include "src/models/vit.h"
#include <tessera/base/error.h>

#include "src/foreign/foreign_config.h"

namespace tessera {
namespace {

constexpr std::int64_t kHeadWidth = 64;   // the same in every model that OpenAI published
constexpr std::int64_t kResnetStride = 32;

/// The shapes of an archive's tensors, by name.
class Shapes {
 public:
  Shapes(const NamedTensors& tensors, const std::string& origin) : tensors_(tensors), origin_(origin) {}

  bool has(const std::string& name) const { return tensors_.contains(name); }

  std::int64_t size(const std::string& name, std::int64_t dimension, std::int64_t dimensions) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) user_error(origin_, ": is not one of OpenAI's CLIP models: tensor ", name, " is missing");
    if (found->second.dim() != dimensions)
      user_error(origin_, ": is not one of OpenAI's CLIP models: tensor ", name, " is ", concat(found->second.sizes()),
                 ", expected ", dimensions,
                 " dimensions");
    return found->second.size(dimension);
  }

  /// Counts the names PREFIX.0.END, PREFIX.1.END, ...
  std::int64_t count(const std::string& prefix, const std::string& end) const {
    std::int64_t out = 0;
    while (has(concat(prefix, ".", out, end))) ++out;
    return out;
  }

  /// Returns the side of the square grid of positions in the tensor `name`. The tensor has one more position, which comes before the grid.
  std::int64_t side(const std::string& name) const {
    const std::int64_t places = size(name, 0, 2) - 1;
    const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(places))));
    if (side * side != places)
      user_error(origin_, ": tensor ", name, " has ", places + 1, " positions, but expected a square number plus one");
    return side;
  }

 private:
  const NamedTensors& tensors_;
  const std::string& origin_;
};

TowerSettings openai_vit(const Shapes& shapes, std::int64_t embed_dim) {
  VitSettings vit;
  vit.width = shapes.size("visual.conv1.weight", 0, 4);
  vit.patch_size = shapes.size("visual.conv1.weight", 2, 4);
  vit.layers = shapes.count("visual.transformer.resblocks", ".attn.in_proj_weight");
  vit.heads = std::max<std::int64_t>(vit.width / kHeadWidth, 1);
  vit.image_size = config::Size(shapes.side("visual.positional_embedding") * vit.patch_size.height);
  vit.activation = "quick_gelu";
  return {chosen("vit", vit), {"cls"}, linear_to(embed_dim)};
}

TowerSettings openai_resnet(const Shapes& shapes, std::int64_t embed_dim) {
  ModifiedResnetSettings resnet;
  for (std::size_t stage = 0; stage < resnet.layers.size(); ++stage)
    resnet.layers.at(stage) = shapes.count(concat("visual.layer", stage + 1), ".conv1.weight");
  resnet.width = shapes.size("visual.layer1.0.conv1.weight", 0, 4);
  resnet.image_size = config::Size(shapes.side("visual.attnpool.positional_embedding") * kResnetStride);
  const std::int64_t heads = std::max<std::int64_t>(resnet.width * ModifiedResnet::kWidening / kHeadWidth, 1);
  return {chosen("modified_resnet", resnet), module_with("attention_pool_2d", {{"heads", heads}, {"output_dim", embed_dim}}), {"none"}};
}

TowerSettings openai_text(const Shapes& shapes, std::int64_t embed_dim) {
  TextTransformerSettings text;
  text.width = shapes.size("ln_final.weight", 0, 1);
  text.layers = shapes.count("transformer.resblocks", ".attn.in_proj_weight");
  text.heads = std::max<std::int64_t>(text.width / kHeadWidth, 1);
  text.context_length = shapes.size("positional_embedding", 0, 2);
  text.vocab_size = shapes.size("token_embedding.weight", 0, 2);
  text.activation = "quick_gelu";
  return {chosen("text_transformer", text), module_with("eos", {{"position", "ids"}}), linear_to(embed_dim)};
}

}  // namespace

std::optional<ModelSettings> openai_model(const NamedTensors& tensors, const std::string& origin) {
  for (const char* number : {"input_resolution", "context_length", "vocab_size"})
    if (!tensors.contains(number)) return std::nullopt;
  const Shapes shapes(tensors, origin);
  const std::int64_t embed_dim = shapes.size("text_projection", 1, 2);
  ModelSettings out;
  out.image = shapes.has("visual.proj") ? openai_vit(shapes, embed_dim) : openai_resnet(shapes, embed_dim);
  out.text = openai_text(shapes, embed_dim);
  out.preprocessing.image_size = config::Value<config::Size>::read(*out.image.encoder.settings.find("image_size"), "image_size", {});
  return resolve(out, origin);
}

}  // namespace tessera
