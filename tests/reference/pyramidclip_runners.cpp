#include <ATen/ATen.h>

#include "src/models/leff.h"
#include "src/models/vit.h"
#include "tests/reference/all_runners.h"
#include "tests/reference/loss_outputs.h"
#include <tessera/models/registry.h>
#include <tessera/objectives/objective.h>

namespace tessera::probe {
namespace {

// The settings of all of PyramidCLIP's encoder cases. Each kind of case uses some of them.
struct EncoderCase {
  std::int64_t patch_size = 16;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t layers = 3;
  std::int64_t leff_layers = 9;
  double mlp_ratio = 4.0;
  std::int64_t output_dim = 512;
  std::string activation = "gelu";
  config::Size grid = {1, 1};
  bool class_token = true;
  std::string leff_norm = "none";
  bool leff_conv_bias = true;
  bool leff_out_activation = false;
  std::string leff_class_token = "identity";
  std::int64_t roi_dim = 2052;
  bool roi_bias = false;
  bool roi_ln_pre = true;
  std::string roi_class_token = "learned";
  bool share_class_token = false;
  std::string rear = "blocks";
  bool training = false;

  TransformerSettings transformer() const {
    TransformerSettings s;
    s.width = width, s.heads = heads, s.layers = layers, s.mlp_ratio = mlp_ratio, s.activation = activation;
    return s;
  }
  LeffSettings leff() const {
    return {.layers = leff_layers,
            .norm = leff_norm,
            .conv_bias = leff_conv_bias,
            .out_activation = leff_out_activation,
            .class_token = leff_class_token};
  }
  VitRegionSettings regions() const {
    VitRegionSettings s;
    s.width = roi_dim, s.bias = roi_bias, s.pre_norm = roi_ln_pre;
    s.class_token = share_class_token ? "shared" : roi_class_token;
    return s;
  }
};

template <class Visitor>
void fields(Visitor& v, EncoderCase& s) {
  v("patch_size", s.patch_size, "as in vit");
  v("width", s.width, "of the tokens");
  v("heads", s.heads, "attention heads");
  v("layers", s.layers, "blocks; for roi_encoder those that regions pass through");
  v("leff_layers", s.leff_layers, "blocks with LeFF");
  v("mlp_ratio", s.mlp_ratio, "as in vit");
  v("output_dim", s.output_dim, "width of the embeddings");
  v("activation", s.activation, "as in vit");
  v("grid", s.grid, "of the patches");
  v("class_token", s.class_token, "whether a class token precedes the patches");
  v("leff_norm", s.leff_norm, "leff.norm");
  v("leff_conv_bias", s.leff_conv_bias, "leff.conv_bias");
  v("leff_out_activation", s.leff_out_activation, "leff.out_activation");
  v("leff_class_token", s.leff_class_token, "leff.class_token");
  v("roi_dim", s.roi_dim, "regions.width");
  v("roi_bias", s.roi_bias, "regions.bias");
  v("roi_ln_pre", s.roi_ln_pre, "regions.pre_norm");
  v("roi_class_token", s.roi_class_token, "regions.class_token");
  v("share_class_token", s.share_class_token, "regions.class_token: shared");
  v("rear", s.rear, "what regions pass through", config::one_of({"blocks", "attention_pool"}));
  v("training", s.training, "mode of the batch norms");
}

// Called after a step. Copies the running statistics of the batch norms into the outputs, under their names in `state`.
template <class State>
void add_running_statistics(const State& state, Outputs& outputs) {
  for (const auto& [name, tensor] : state)
    if (name.find("running_") != std::string::npos) outputs[name] = tensor;
}

Outputs run_leff_block(Run& run) {
  const auto s = config::read<EncoderCase>(run.settings());
  const auto hidden = static_cast<std::int64_t>(static_cast<double>(s.width) * s.mlp_ratio);
  TransformerBlock block(s.transformer(), BlockInitialization::image,
                         std::make_shared<Leff>(s.leff(), s.width, hidden, s.activation));
  run.bind_all(block);
  block.train(s.training);
  Outputs outputs = {{"x", block.forward(run.input("x"), {{}, s.grid, s.class_token})}};
  if (s.training) add_running_statistics(block.named_buffers().pairs(), outputs);
  return outputs;
}

TowerInput regions_of(const Run& run) {
  TowerInput input;
  input.regions = run.input("roi");
  input.mask = run.optional_input("roi_mask");
  return input;
}

// Makes a tower with these ViT settings. The tower accepts images and regions; the case may lack parameters that only images or only
// regions use.
std::shared_ptr<Tower> make_tower(Run& run, const VitSettings& vit, std::int64_t output_dim) {
  config::ModuleSettings projection{"linear"};
  projection.settings.set("embed_dim", config::Value<std::int64_t>::dump(output_dim));
  SharedParameters shared;
  auto tower = std::make_shared<Tower>(TowerSettings{{"vit", config::dump(vit)}, {"cls"}, projection}, Modality::image, shared, run.path());
  tower->to(run.device(), run.parameter_dtype());
  for (const auto& [name, tensor] : tower->state_dict())
    if (run.has_parameter(name)) run.bind(name, tensor);
  return tower;
}

// Passes the sequence of regions through the attention pooling at the end of a ResNet.
Outputs run_attention_pool(Run& run, const EncoderCase& s) {
  torch::nn::Module front("front");
  RegionTokens region_tokens(s.regions(), s.width, /*class_token=*/true, {}, front);
  std::shared_ptr<LayerNorm> ln_pre;
  if (s.roi_ln_pre) ln_pre = front.register_module("ln_pre", std::make_shared<LayerNorm>(s.width, 1e-5));
  run.bind_all(front);
  config::ModuleSettings choice{"attention_pool_2d"};
  choice.settings.set("heads", config::Value<std::int64_t>::dump(s.heads));
  choice.settings.set("output_dim", config::Value<std::int64_t>::dump(s.output_dim));
  const auto pool = readouts().make(choice, run.path(), {.width = s.width, .tokens = 1, .grid = {1, 1}, .modality = Modality::image});
  pool->to(run.device(), run.parameter_dtype());
  for (const auto& item : pool->named_parameters())
    if (const std::string name = pool->state_dict_key(item.key()); run.has_parameter(name)) run.bind(name, item.value());

  const TowerInput input = regions_of(run);
  const at::Tensor x = region_tokens.forward(input.regions, input.mask, ln_pre.get()).tokens;
  Encoded encoded;
  encoded.class_token = x.select(1, 0);
  encoded.tokens = x.slice(1, 1);
  encoded.mask = input.mask;
  return {{"embedding", pool->forward(encoded, {}).embedding}};
}

Outputs run_roi_encoder(Run& run) {
  const auto s = config::read<EncoderCase>(run.settings());
  if (s.rear == "attention_pool") return run_attention_pool(run, s);
  VitSettings vit;
  static_cast<TransformerSettings&>(vit) = s.transformer();
  vit.pre_norm = s.roi_ln_pre;
  vit.regions = s.regions();
  vit.regions->first_block = 0;
  return {{"embedding", make_tower(run, vit, s.output_dim)->forward(regions_of(run)).global}};
}

Outputs run_pyramidclip_vit(Run& run) {
  const auto s = config::read<EncoderCase>(run.settings());
  const at::Tensor& image = run.input("image");
  VitSettings vit;
  static_cast<TransformerSettings&>(vit) = s.transformer();
  vit.patch_size = s.patch_size;
  vit.image_size = config::Size(image.size(2), image.size(3));
  vit.leff = s.leff();
  vit.regions = s.regions();
  vit.regions->first_block = s.leff_layers;
  const auto tower = make_tower(run, vit, s.output_dim);
  tower->train(s.training);
  Outputs outputs = {{"image_embedding", tower->forward(image_input(image)).global}};
  if (run.has("roi")) outputs["roi_embedding"] = tower->forward(regions_of(run)).global;
  if (s.training) add_running_statistics(tower->state_dict(), outputs);
  return outputs;
}

Outputs run_pyramidclip(Run& run) {
  Features features;
  const auto take = [&](std::map<std::string, TowerFeatures>& views, const char* view, const char* input,
                        const char* mask) {
    if (!run.has(input)) return;
    views[view].global = run.input(input);
    views[view].present = run.optional_input(mask);
  };
  take(features.images, "global", "image_global", "");
  take(features.images, "local", "image_local", "");
  take(features.images, "roi", "image_roi", "roi_mask");
  take(features.texts, "summary", "text_summary", "");
  take(features.texts, "caption", "text_caption", "");
  take(features.texts, "objects", "text_attributes", "attributes_mask");
  config::Node settings = run.settings();
  settings.erase("training");  // `training` matters only for modules with batch norms, which this objective does not have
  const auto objective = objectives().make({"pyramidclip", settings}, "pyramidclip", {});
  run.bind_all(*objective);
  return outputs_of(objective->forward(features, {}));
}

}  // namespace

void add_pyramidclip_runners(Runners& runners) {
  runners.add("leff_block", run_leff_block);
  runners.add("roi_encoder", run_roi_encoder);
  runners.add("pyramidclip_vit", run_pyramidclip_vit);
  runners.add("pyramidclip", run_pyramidclip);
}

}  // namespace tessera::probe
