#include "tools/open_clip/recipe.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/foreign/published_tokenizer.h"
#include "src/foreign/architectures.h"
#include "src/foreign/foreign_model.h"
#include "src/foreign/open_clip.h"
#include "tools/open_clip/flags.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>
#include <tessera/models/registry.h>
#include <tessera/training/config/config.h>

namespace tessera::tools::open_clip {
namespace {

using config::Node;
using nlohmann::json;

constexpr const char* kDownloads = "downloads/";

/// Returns the YAML of a tree on one line, with its keys in order.
std::string in_one_line(const Node& node) {
  if (node.is_null()) return "null";
  if (node.is_scalar()) return node.quoted() || node.text().empty() ? yaml_text(node.text()) : node.text();
  std::string out;
  for (const Node& item : node.items()) out += (out.empty() ? "" : ", ") + in_one_line(item);
  for (const auto& [key, value] : node.members()) out += (out.empty() ? "" : ", ") + key + ": " + in_one_line(value);
  return node.is_map() ? "{" + out + "}" : "[" + out + "]";
}

/// The part of the run that is already converted: settings, each KEY=VALUE, and comments.
struct Draft {
  Settings settings;
  std::vector<std::string> remarks;

  void set(const std::string& key, const std::string& value) { settings.push_back(key + "=" + value); }
  void set(const std::string& key, const Node& value) { set(key, in_one_line(value)); }
};

// ---- the model

/// Removes the settings that equal their defaults. `module` is a module's {name, settings...}.
Node without_defaults(const config::RegistryBase& registry, const Node& module) {
  const Node* name = module.find("name");
  if (name == nullptr) return module;
  const config::ModuleSettings defaults = registry.resolve({name->text()}, name->text());
  Node out = module;
  for (const auto& [key, value] : defaults.settings.members())
    if (const Node* own = module.find(key); own != nullptr && config::to_json(*own) == config::to_json(value)) out.erase(key);
  return out;
}

Node tower_node(const TowerSettings& tower) {
  const Node whole = config::dump(tower);
  Node out = Node::map();
  for (const auto& [part, module] : whole.members())
    out.set(part, without_defaults(part == "encoder" ? static_cast<const config::RegistryBase&>(encoders())
                                   : part == "readout" ? static_cast<const config::RegistryBase&>(readouts())
                                                       : static_cast<const config::RegistryBase&>(projections()),
                                   module));
  return out;
}

void add_tokenizer(Draft& draft, const ForeignModel& model, const json& text_config) {
  const std::string length = model.model.text->encoder.settings.find("context_length")->text();
  if (!model.tokenizer_in_folder)
    return draft.set("tokenizer", config::Value<config::ModuleSettings>::dump(clip_tokenizer(*model.model.text)));
  const std::string name = text_config.value("hf_tokenizer_name", ""), folder = kDownloads + name, file = folder + "/tokenizer.json";
  if (std::filesystem::is_regular_file(file)) {
    config::ModuleSettings found = tokenizer_of_folder(model, folder)->settings;
    found.settings.set("model", Node::scalar(file, {}, true));
    return draft.set("tokenizer", without_defaults(tokenizers(), config::Value<config::ModuleSettings>::dump(found)));
  }
  Node out = Node::map({{"name", Node::scalar("tokenizer_json")}, {"model", Node::scalar(file, {}, true)}, {"context_length", Node::scalar(length)}});
  if (!model.cleanup.empty()) out.set("cleanup", Node::scalar(model.cleanup));
  if (model.padding_is_text) out.set("pad_is_text", Node::scalar("true"));
  const bool siglip = name.find("SigLIP") != std::string::npos && name.find("SigLIP2") == std::string::npos;
  if (siglip || name.find("roberta") != std::string::npos || name.find("nllb") != std::string::npos) out.set("pad_id", Node::scalar("1"));
  draft.set("tokenizer", out);
  draft.remarks.push_back(concat("tokenizer: OpenCLIP downloads ", name, ": put its tokenizer.json at ", file, ", or change this path"));
  if (model.separator_is_padding)
    draft.remarks.push_back(
        "tokenizer: set zero_id to the id of [SEP] in that file, because OpenCLIP replaces this id by 0 (strip_sep_token)");
}

/// If towers come from other libraries, adds the remark that the file of the weights needs the model's configuration next to it, because
/// the tensor names of such towers depend on the configuration.
void remark_on_named_towers(Draft& draft, const Parameters& p, const json& config) {
  if (!config.at("vision_cfg").contains("timm_model_name") && !config.at("text_cfg").contains("hf_model_name")) return;
  draft.remarks.push_back(concat("start.weights: weights with towers of timm or transformers need open_clip_config.json next to the file: python3 -c \"import json, open_clip; json.dump({'model_cfg': open_clip.get_model_config('",
                                 open_clip_model_name(p), "')}, open('open_clip_config.json', 'w'))\" writes it"));
}

void add_weights(Draft& draft, const Parameters& p, const json& tags, const json& config) {
  if (p.has("pretrained") || p.has("resume")) remark_on_named_towers(draft, p, config);
  const bool quick_gelu = config.value("quick_gelu", false);
  const std::string& name = p.text("pretrained");
  if (!p.has("pretrained") || !find_flag("pretrained")->settings(p).empty() || p.has("resume")) return;
  const std::string tag_name = open_clip_tag_name(p);
  if (!tags.contains(tag_name)) {
    draft.set("start.weights", yaml_text(name));
    return draft.remarks.push_back(concat("--pretrained ", name, ": open_clip_torch 3.3.0 knows no such tag of ", p.text("model"),
                                          ": set start.weights to its file"));
  }
  const json& tag = tags.at(tag_name);
  const std::string from = tag.value("hf_hub", tag.value("url", ""));
  const bool hub = tag.contains("hf_hub");
  const std::string file = kDownloads + from.substr(from.rfind('/') + 1) + (hub ? "/open_clip_model.safetensors" : "");
  draft.set("start.weights", yaml_text(file));
  draft.remarks.push_back(concat("--pretrained ", name, ": download ", hub ? "open_clip_model.safetensors of Hugging Face's " : "",
                                 from, " to ", file,
                                 "; Tessera downloads nothing (--set start.weights=null starts with random weights)"));
  if (tag.value("quick_gelu", false) != quick_gelu)
    draft.remarks.push_back(concat("--pretrained ", name, ": these weights were trained ",
                                   quick_gelu ? "without quick GELU, but the model has it"
                                              : "with quick GELU, but the model does not have it, about which OpenCLIP warns"));
}

// ---- settings that depend on the model

std::int64_t whole_at(const Node& settings, const char* key) {
  const Node* found = settings.find(key);
  return found == nullptr ? 0 : config::Value<std::int64_t>::read(*found, key, 0);
}

/// Appends patterns that freeze all blocks except the last ones. `open` is the number of blocks that stay trainable.
void add_blocks(std::vector<std::string>& patterns, const std::string& prefix, std::int64_t layers, std::int64_t open) {
  for (std::int64_t i = 0; i < layers - open; ++i) patterns.push_back(concat(prefix, "transformer.resblocks.", i, ".*"));
}

/// Returns the patterns that freeze a ViT except for its last groups. `open` is the number of groups that stay trainable. OpenCLIP's groups
/// are, in order: the embeddings with ln_pre, each block except the last, the last block with ln_post, and the projection.
std::vector<std::string> locked_vit(const TowerSettings& tower, std::int64_t open) {
  const Node& vit = tower.encoder.settings;
  std::vector<std::string> out;
  if (const std::int64_t layers = whole_at(vit, "layers"); open < layers + 2) {
    out = {"visual.conv1.*", "visual.*_embedding"};
    if (vit.find("pre_norm")->text() == "true") out.push_back("visual.ln_pre.*");
    add_blocks(out, "visual.", layers, std::max<std::int64_t>(0, open - 1));
    if (open < 2) out.push_back("visual.ln_post.*");
  }
  return out;
}

/// Returns the patterns that freeze a text tower except for its last layers. `open` is the number of layers that stay trainable. OpenCLIP's
/// layers are, in order: the embeddings, each block except the last, the last block with ln_final, and the projection.
std::vector<std::string> locked_text(const TowerSettings& tower, std::int64_t open) {
  const std::int64_t layers = whole_at(tower.encoder.settings, "layers");
  std::vector<std::string> out;
  if (open >= layers + 2) return out;
  out = {"token_embedding.*", "positional_embedding"};
  if (tower.encoder.settings.find("class_token")->text() != "none") out.push_back("cls_emb");
  add_blocks(out, "", layers, std::max<std::int64_t>(0, open - 1));
  if (open < 2) out.push_back("ln_final.*");
  return out;
}

void add_frozen(Draft& draft, const Parameters& p, const ForeignModel& model, const json& config) {
  std::vector<std::string> frozen;
  const auto lock = [&](const char* flag, const char* count, const char* side, bool own, const auto& patterns) {
    if (!p.has(flag)) return;
    const std::int64_t open = p.whole(count);
    if (open > 0 && own) {
      for (std::string& pattern : patterns(open)) frozen.push_back(std::move(pattern));
    } else {
      frozen.emplace_back(side);
      if (open > 0) draft.remarks.push_back(concat(find_flag(count)->option(), " ", open, ": only OpenCLIP's own towers have these groups here: all of the tower is frozen"));
    }
  };
  const bool own_image = model.model.image.encoder.name == "vit" && !config.at("vision_cfg").contains("timm_model_name") && model.model.image.readout.name == "cls";
  const bool own_text = !config.at("text_cfg").contains("hf_model_name");
  lock("lock_image", "lock_image_unlocked_groups", "image", own_image, [&](std::int64_t open) { return locked_vit(model.model.image, open); });
  lock("lock_text", "lock_text_unlocked_layers", "text", own_text, [&](std::int64_t open) { return locked_text(*model.model.text, open); });
  if (!frozen.empty()) draft.set("parameters.frozen", json(frozen).dump());
}

void add_grad_checkpointing(Draft& draft, const Parameters& p, const ForeignModel& model) {
  if (!p.has("grad_checkpointing")) return;
  const auto add = [&](const TowerSettings& tower, const char* side) {
    if (tower.encoder.settings.find("grad_checkpointing") != nullptr) return draft.set(concat("model.", side, ".encoder.grad_checkpointing"), "true");
    draft.remarks.push_back(concat("--grad-checkpointing: the ", side, " encoder, ", tower.encoder.name, ", does not support it"));
  };
  add(model.model.image, "image");
  add(*model.model.text, "text");
}

void add_coca(Draft& draft, const Parameters& p, const json& config) {
  if (!config.contains("multimodal_cfg")) return;
  const json& decoder = config.at("multimodal_cfg");
  draft.set("objective", json{{"name", "weighted_sum"},
                              {"objectives",
                               {{{"name", "clip"}, {"weight", p.number("coca_contrastive_loss_weight")}},
                                {{"name", "captioning"},
                                 {"weight", p.number("coca_caption_loss_weight")},
                                 {"parallel", 0.0},
                                 {"decoder", {{"context_length", config.at("text_cfg").value("context_length", 77)}, {"layers", decoder.value("layers", 12)}, {"heads", decoder.value("heads", 8)}}}}}}}
                             .dump());
  draft.remarks.push_back(
      "CoCa: OpenCLIP's decoder continues from the text tower's output tokens and has its own token table; the decoder of captioning "
      "embeds the caption's tokens with the text tower's table and attends to the image's tokens, so the losses differ");
}

void add_model(Draft& draft, const Parameters& p) {
  if (p.text("model").starts_with("local-dir:")) {
    const std::string folder = yaml_text(p.text("model").substr(std::string_view("local-dir:").size()));
    draft.set("model.image.from", folder);
    return draft.set("model.text.from", folder);
  }
  if (p.text("model").starts_with("hf-hub:"))
    user_error("model is ", p.text("model"), ": Tessera downloads nothing: download that folder and write model: local-dir:FOLDER");
  const json file = open_clip_run_config(p), &config = file.at("model_cfg"), tags = open_clip_pretrained(open_clip_model_name(p));
  const ForeignModel model = open_clip_model(file.dump(), config::shipped_folder() + "/architectures/open_clip.json: " + open_clip_model_name(p));
  Node image = tower_node(model.model.image), encoder = *image.find("encoder");
  encoder.erase("image_size");  // the encoder takes it from the preprocessing
  image.set("encoder", encoder);
  draft.set("model.image", image);
  draft.set("model.text", tower_node(*model.model.text));
  if (model.model.unit_length) draft.set("model.unit_length", "true");
  const json preprocessing = config::to_json(config::dump(model.model.preprocessing)), standard = config::to_json(config::dump(Preprocessing()));
  for (const auto& [key, value] : preprocessing.items())
    if (key == "image_size" || value != standard.at(key)) draft.set("model.preprocessing." + key, value.dump());
  add_tokenizer(draft, model, config.at("text_cfg"));
  add_weights(draft, p, tags, config);
  add_frozen(draft, p, model, config);
  add_grad_checkpointing(draft, p, model);
  add_coca(draft, p, config);
}

// ---- the run

/// Sets csv_rows to the number of rows in the run's table, from which open_clip_train computes its number of steps. Adds a remark if the
/// table cannot be read here.
void count_rows(Parameters& p, Draft& draft) {
  if (dataset_type(p) != "csv" || !p.has("train_data")) return;
  Node source = Node::map();
  for (const char* name : {"train_data", "csv_separator", "csv_img_key", "csv_caption_key"})
    for (const std::string& setting : find_flag(name)->settings(p)) config::apply_override(source, setting);
  try {
    const Node& train = *source.find("data")->find("train");
    const auto table = sources().make(config::Value<config::ModuleSettings>::read(train, "data.train", {}), "data.train");
    p.set("csv_rows", std::to_string(table->size()));
  } catch (const UserError& error) {
    draft.remarks.push_back(concat(
        "--train-data: the table cannot be read here, so the steps are counted when the run starts, and checkpoints are saved every "
        "1,000 steps (",
        error.what(), ")"));
  }
}

void remark_on_missing_data(Draft& draft, const Parameters& p) {
  if (p.has("train_data") || dataset_type(p) == "synthetic") return;
  draft.remarks.push_back("--train-data is missing: add data.train, or use the program evaluate if open_clip_train only evaluated");
}

std::string shown(const std::string& value) {
  std::string out = value.empty() ? "''" : value;
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out == "\t" ? "\\t" : out;
}

/// If a flag makes the run differ from OpenCLIP's run, or is set but has no counterpart in Tessera, adds a remark on the flag.
void remark_on(Draft& draft, const Parameters& p, const Flag& flag, bool settled) {
  if (!flag.differs(p)) return;
  std::string text = settled ? flag.difference : flag.counterpart() + (flag.difference.empty() ? "" : ". " + flag.difference);
  std::erase(text, '`');
  draft.remarks.push_back(concat(flag.option(), flag.words == Words::none ? "" : " " + shown(p.text(flag.name)), ": ", text));
}

/// Returns the depth of a setting's key. Settings are sorted by depth, because a setting that replaces a whole module must come before
/// settings within the module.
std::ptrdiff_t depth(const std::string& setting) {
  return std::count(setting.begin(), setting.begin() + static_cast<std::ptrdiff_t>(setting.find('=')), '.');
}

/// Returns the tree of the settings, with its groups in the order of docs/configuration.md.
Node tree_of(Settings settings) {
  std::stable_sort(settings.begin(), settings.end(), [](const auto& a, const auto& b) { return depth(a) < depth(b); });
  Node whole = Node::map(), out = Node::map();
  for (const std::string& setting : settings) config::apply_override(whole, setting);
  const Node order = config::dump(Config());
  for (const char* first : {"run", "seed"})
    if (const Node* group = whole.find(first)) out.set(first, *group);
  for (const auto& [name, group] : order.members())
    if (const Node* own = whole.find(name); own != nullptr && out.find(name) == nullptr) out.set(name, *own);
  return out;
}

std::string comment(const std::string& text) {
  std::string out;
  std::string line = "#";
  for (const std::string& word : split(text, ' ')) {
    if (line.size() + 1 + word.size() > 140) {
      out += line + "\n";
      line = "#  ";
    }
    line += " " + word;
  }
  return out + line + "\n";
}

}  // namespace

std::string recipe_of(const std::string& file) {
  const auto given = parse_open_clip_params(io::read_file(file), file);
  if (std::ranges::none_of(given, [](const auto& item) { return find_flag(item.first) != nullptr; }))
    user_error(file, ": has no parameter of open_clip_train: expected its params.txt, lines of name: value");
  Parameters p = with_defaults(given);
  Draft draft;
  count_rows(p, draft);
  try {
    add_model(draft, p);
    for (const Flag& flag : flags()) {
      const Settings settings = flag.of_model ? Settings() : flag.settings(p);
      draft.settings.insert(draft.settings.end(), settings.begin(), settings.end());
      remark_on(draft, p, flag, flag.of_model || !settings.empty());
    }
  } catch (const UserError& error) {
    user_error(file, ": ", error.what());
  }
  remark_on_missing_data(draft, p);
  for (const std::string& name : p.unknown())
    draft.remarks.push_back(concat(name, ": ", shown(p.text(name)), ": open_clip_train 3.3.0 has no such parameter; it is ignored"));
  std::string out = comment(concat("The open_clip_train run with the parameters in ", file, ", converted by trainer --from-open-clip."));
  if (const std::int64_t ranks = p.whole("world_size"); ranks > 1)
    out += comment(concat("It had ", ranks, " processes: start this one with --nproc ", ranks, ", or with torchrun or srun."));
  for (const std::string& remark : draft.remarks) out += comment("- " + remark + ".");
  return out + config::to_yaml(tree_of(draft.settings));
}

}  // namespace tessera::tools::open_clip
