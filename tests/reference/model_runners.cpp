#include <ATen/ATen.h>

#include "src/evaluation/metrics/localization.h"
#include "src/models/attention.h"
#include "src/models/position_embedding.h"
#include "src/models/readouts/fdt.h"
#include "src/models/readouts/sparo.h"
#include "src/models/token_projection.h"
#include "src/models/vit.h"
#include "tests/reference/all_runners.h"
#include <tessera/models/registry.h>
#include <tessera/ops/sparsemax.h>

namespace tessera::probe {
namespace {

using config::Node;

/// Settings that occur in the reference cases but not in our encoders.
struct TowerKeys {
  std::string pool;
  std::optional<std::int64_t> embed_dim;
  std::optional<std::int64_t> eos_id;
};

template <class T>
T take(Node& settings, const std::string& key, T fallback) {
  const Node* node = settings.find(key);
  if (node == nullptr) return fallback;
  T value = config::Value<T>::read(*node, key, fallback);
  settings.erase(key);
  return value;
}

Node number(std::int64_t value) {
  return config::Value<std::int64_t>::dump(value);
}

/// Copies the case's parameters into the tower. A case names the parameters as model files do.
void bind_tower(Run& run, Tower& tower, const std::string& prefix) {
  tower.to(run.device(), run.parameter_dtype());
  for (const auto& [name, tensor] : tower.state_dict())
    if (tensor.requires_grad() || run.has_parameter(prefix + name)) run.bind(prefix + name, tensor);
}

Outputs run_tower(Tower& tower, const TowerInput& input) {
  const Encoded encoded = tower.encoder().encode(input);
  const ReadOutOutput pooled = tower.readout().forward(encoded, {});
  Outputs outputs = {{"tokens", encoded.tokens}};
  if (pooled.embedding.defined())
    outputs["pooled"] = tower.projection().global(tower.encoder().final_norm(pooled.embedding));
  return outputs;
}

/// Returns `linear` if the case has the projection matrix. Also returns `linear` if the case sets embed_dim and its pool is not `none`.
/// Otherwise returns `none`. A case with the matrix need not set embed_dim, which has a default. If the pool of such a case is `none`, the
/// projection exists but is not applied.
config::ModuleSettings projection_choice(const Run& run, const TowerKeys& keys, const std::string& matrix) {
  if (!run.has_parameter(matrix) && (!keys.embed_dim || keys.pool == "none")) return {"none"};
  config::ModuleSettings choice{"linear"};
  choice.settings.set("embed_dim", number(keys.embed_dim.value_or(512)));
  return choice;
}

Outputs run_vit(Run& run) {
  TowerSettings settings{{"vit", run.settings()}, {}, {}};
  TowerKeys keys;
  keys.pool = take<std::string>(settings.encoder.settings, "pool", "cls");
  keys.embed_dim = take(settings.encoder.settings, "embed_dim", keys.embed_dim);
  settings.readout.name = keys.pool;
  settings.projection = projection_choice(run, keys, "visual.proj");
  SharedParameters shared;
  Tower tower(settings, Modality::image, shared, run.path());
  bind_tower(run, tower, "visual.");
  return run_tower(tower, image_input(run.input("image")));
}

Outputs run_text_transformer(Run& run) {
  TowerSettings settings{{"text_transformer", run.settings()}, {}, {}};
  Node& encoder = settings.encoder.settings;
  TowerKeys keys;
  keys.pool = take<std::string>(encoder, "pool", "eos");
  keys.embed_dim = take(encoder, "embed_dim", keys.embed_dim);
  keys.eos_id = take(encoder, "eos_id", keys.eos_id);
  settings.readout.name = keys.pool;
  if (keys.pool == "eos") {
    settings.readout.settings.set("position", Node::scalar("ids"));
    if (keys.eos_id) settings.readout.settings.set("eos_id", number(*keys.eos_id));
  }
  settings.projection = projection_choice(run, keys, "text_projection");
  SharedParameters shared;
  Tower tower(settings, Modality::text, shared, run.path());
  bind_tower(run, tower, "");
  return run_tower(tower, text_input(run.input("ids"), run.optional_input("mask")));
}

Outputs run_modified_resnet(Run& run) {
  TowerSettings settings{{"modified_resnet", run.settings()}, {"attention_pool_2d"}, {"none"}};
  Node& encoder = settings.encoder.settings;
  const bool training = take(encoder, "training", false);
  settings.readout.settings.set("heads", number(take<std::int64_t>(encoder, "heads", 32)));
  settings.readout.settings.set("output_dim", number(take<std::int64_t>(encoder, "embed_dim", 1024)));
  SharedParameters shared;
  Tower tower(settings, Modality::image, shared, run.path());
  bind_tower(run, tower, "visual.");
  tower.train(training);
  Outputs outputs = run_tower(tower, image_input(run.input("image")));
  if (training)
    for (const auto& [name, tensor] : tower.state_dict())
      if (name.find("running_") != std::string::npos) outputs["updated.visual." + name] = tensor;
  return outputs;
}

struct ResizeSettings {
  config::Size grid;
  std::optional<config::Size> old_grid;
  std::int64_t prefix_tokens = 1;
};

template <class Visitor>
void fields(Visitor& v, ResizeSettings& s) {
  v("grid", s.grid, "new rows and columns");
  v("old_grid", s.old_grid, "old rows and columns; null: a square");
  v("prefix_tokens", s.prefix_tokens, "rows before the grid, which are copied", config::at_least(0));
}

Outputs run_resize_pos_embed(Run& run) {
  const auto settings = config::read<ResizeSettings>(run.settings());
  const at::Tensor& embedding = run.input("pos_embed");
  const config::Size old_grid = settings.old_grid.value_or(square_grid(embedding.size(0) - settings.prefix_tokens));
  return {{"pos_embed", resize_position_embedding(embedding, settings.grid, old_grid, settings.prefix_tokens)}};
}

struct ResizeTextSettings {
  std::int64_t context_length = 77;
};

template <class Visitor>
void fields(Visitor& v, ResizeTextSettings& s) {
  v("context_length", s.context_length, "new number of positions", config::at_least(1));
}

Outputs run_resize_text_pos_embed(Run& run) {
  const auto settings = config::read<ResizeTextSettings>(run.settings());
  return {{"pos_embed", resize_text_position_embedding(run.input("pos_embed"), settings.context_length)}};
}

struct SparcHeadSettings {
  std::int64_t embed_dim = 512;
  std::int64_t image_width = 768;
  std::int64_t text_width = 768;
  std::string global_head = "nonlinear";
  bool adaptor_bias = true;
};

template <class Visitor>
void fields(Visitor& v, SparcHeadSettings& s) {
  v("embed_dim", s.embed_dim, "of both sides");
  v("image_width", s.image_width, "of the patches");
  v("text_width", s.text_width, "of the text tokens");
  v("global_head", s.global_head, "as in the adaptor projection");
  v("adaptor_bias", s.adaptor_bias, "as bias in the adaptor projection");
}

void bind_adaptor(Run& run, Projection& adaptor, const std::string& side) {
  adaptor.to(run.device(), run.parameter_dtype());
  for (const auto& item : adaptor.named_parameters()) {
    const bool head = item.key().starts_with("global_head.");
    run.bind(
        side + (head ? item.key().substr(std::string("global_head").size()).insert(0, "_global") : "_" + item.key()),
        item.value());
  }
}

Outputs run_sparc_head(Run& run) {
  const auto s = config::read<SparcHeadSettings>(run.settings());
  config::ModuleSettings adaptor{"adaptor"};
  adaptor.settings.set("embed_dim", number(s.embed_dim));
  adaptor.settings.set("bias", Node::scalar(s.adaptor_bias ? "true" : "false"));
  adaptor.settings.set("global_head", Node::scalar(s.global_head));
  const auto image = projections().make(adaptor, run.path(), {s.image_width, s.image_width, Modality::image, run.path()});
  const auto text = projections().make(adaptor, run.path(), {s.text_width, s.text_width, Modality::text, run.path()});
  bind_adaptor(run, *image, "image");
  bind_adaptor(run, *text, "text");
  const auto mean = readouts().make({"gap"}, run.path(), {});
  const at::Tensor& patches = run.input("image_features");
  const at::Tensor& mask = run.input("text_mask");
  const at::Tensor words = zero_padding(run.input("text_features"), mask);  // sets padding to 0, as encoders do
  return {{"image_tokens", image->tokens(patches)},
          {"image_global", image->global(mean->forward({.tokens = patches}, {}).embedding)},
          {"dense_tokens", image->dense(patches)},
          {"text_tokens", zero_padding(text->tokens(words), mask)},
          {"text_global", text->global(mean->forward({.tokens = words, .mask = mask}, {}).embedding)}};
}

Runner readout_runner(const std::string& name) {
  return [name](Run& run) -> Outputs {
    Node settings = run.settings();
    ReadOutContext context;
    context.width = take<std::int64_t>(settings, "width", 0);
    // Cases may set value_width although values are shared. In a configuration this would be an error, so the setting is removed.
    const Node* shares = settings.find("share_values");
    if (name == "sparo" && (shares == nullptr || shares->text() == "true")) take<std::int64_t>(settings, "value_width", 0);
    context.modality = Modality::text;  // `text` means any token sequence with a mask, even one that begins with a class token
    SharedParameters shared;
    context.shared = &shared;
    const auto readout = readouts().make({name, settings}, run.path(), context);
    run.bind_all(*readout);
    const Encoded encoded{
        .tokens = run.input("tokens"), .mask = run.optional_input("mask"), .ids = run.optional_input("ids")};
    const ReadOutOutput pooled = readout->forward(encoded, {.slots = true, .attention = true});
    Outputs outputs = {{"embedding", pooled.embedding}};
    if (pooled.slots.defined()) outputs[name == "attentional_pool" ? "queries" : "slots"] = pooled.slots;
    if (pooled.attention.defined()) outputs["attention"] = pooled.attention;
    if (name == "linear_bottleneck") {
      auto& pool = dynamic_cast<ReadOut&>(*readout->named_children()["pool"]);
      outputs["bottleneck"] = at::matmul(pool.forward(encoded, {}).embedding, readout->named_parameters()["proj"]);
    }
    if (auto* fdt = dynamic_cast<Fdt*>(readout.get())) {
      const Fdt::Codes codes = fdt->codes(encoded);
      outputs["scores"] = codes.scores;
      outputs["weights"] = codes.weights;
    }
    return outputs;
  };
}

/// Returns the head that a case describes. The head uses the case's token table. Removes the table's settings from `settings`.
std::shared_ptr<TokenProjection> token_head(Run& run, Node& settings) {
  const auto vocabulary = take<std::int64_t>(settings, "vocab_size", 30522),
             text_width = take<std::int64_t>(settings, "text_width", 512);
  SharedParameters shared;
  shared.token_embedding =
      at::zeros({vocabulary, text_width}, at::TensorOptions(run.device()).dtype(run.parameter_dtype()))
          .set_requires_grad(true);
  run.bind("token_embedding.weight", shared.token_embedding);
  ReadOutContext context;
  context.width = take<std::int64_t>(settings, "width", 768);
  context.path = run.path();
  context.shared = &shared;
  const auto head = std::make_shared<TokenProjection>(config::read<TokenProjectionSettings>(settings), context);
  run.bind_all(*head);
  return head;
}

Outputs run_token_projection(Run& run) {
  Node settings = run.settings();
  const auto head = token_head(run, settings);
  const TokenMaxProjection out = head->project({.tokens = run.input("tokens"), .mask = run.optional_input("mask")});
  return {{"encoding", out.encoding}, {"argmax", out.argmax}};
}

Outputs run_token_localization(Run& run) {
  Node settings = run.settings();
  const auto grid = take<config::Size>(settings, "grid", {});
  const auto head = token_head(run, settings);
  const auto out = metrics::token_localization(head->activations(run.input("tokens"), run.input("query_ids")), grid);
  return {{"map", out.map}, {"map_normalized", out.normalized}};
}

struct SparsemaxSettings {
  std::int64_t dim = -1;
};

template <class Visitor>
void fields(Visitor& v, SparsemaxSettings& s) {
  v("dim", s.dim, "dimension that sums to 1");
}

Outputs run_sparsemax(Run& run) {
  return {{"output", sparsemax(run.input("input"), config::read<SparsemaxSettings>(run.settings()).dim)}};
}

Outputs run_slot_normalize(Run& run) {
  const at::Tensor image = concatenated_unit_slots(run.input("image_slots")),
                   text = concatenated_unit_slots(run.input("text_slots"));
  return {{"image_embedding", image}, {"text_embedding", text}, {"similarity", at::matmul(image, text.t())}};
}

}  // namespace

void add_model_runners(Runners& runners) {
  runners.add("vit", run_vit);
  runners.add("text_transformer", run_text_transformer);
  runners.add("modified_resnet", run_modified_resnet);
  runners.add("resize_pos_embed", run_resize_pos_embed);
  runners.add("resize_text_pos_embed", run_resize_text_pos_embed);
  runners.add("sparc_head", run_sparc_head);
  for (const char* name : {"cls", "eos", "gap", "max", "attentional_pool", "sparo", "linear_bottleneck", "fdt"})
    runners.add(name, readout_runner(name));
  runners.add("token_projection", run_token_projection);
  runners.add("token_localization", run_token_localization);
  runners.add("sparsemax", run_sparsemax);
  runners.add("slot_normalize", run_slot_normalize);
}

}  // namespace tessera::probe
