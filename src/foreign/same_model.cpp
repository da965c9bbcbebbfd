#include "src/foreign/same_model.h"

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "src/config/values.h"
#include <tessera/base/error.h>
#include <tessera/config/registry.h>

namespace tessera {
namespace {

using config::Node;

Node text_node(const std::string& text) {
  return Node::scalar(text, {}, /*quoted=*/true);
}

std::string text_at(const Node& tree, const char* key) {
  const Node* found = tree.find(key);
  return found == nullptr ? "" : found->text();
}

/// Different values of prefix_positions can have the same effect in this encoder. Replaces such values by a single one, so that they
/// compare as equal.
void compare_prefix_as_it_is(Node& encoder) {
  if (encoder.find("prefix_positions") == nullptr) return;
  const bool registers = text_at(encoder, "registers") != "0", class_token = text_at(encoder, "class_token") == "true";
  const bool learned = text_at(encoder, "position_embedding") == "learned";
  if (!learned || (!registers && !class_token)) encoder.set("prefix_positions", text_node("none"));
  if (learned && !registers && text_at(encoder, "prefix_positions") == "all") encoder.set("prefix_positions", text_node("class_token"));
}

/// Brings an encoder's settings into a form that can be compared: the MLP's hidden width becomes a number if it is not
/// one yet, and settings that matter only in training or for reading a file are removed.
Node comparable_encoder(Node encoder) {
  for (const char* of_training :
       {"patch_dropout", "drop_path", "grad_checkpointing", "mask_token", "skip_padding", "kept_positions", "regions"})
    encoder.erase(of_training);
  if (const Node* scale = encoder.find("layer_scale_init"); scale != nullptr && !scale->is_null())
    encoder.set("layer_scale_init", text_node("some"));
  if (const Node* hidden = encoder.find("mlp_hidden"); hidden != nullptr && hidden->is_null() && encoder.find("mlp_ratio") != nullptr) {
    const auto width = config::Value<std::int64_t>::read(*encoder.find("width"), "width", 0);
    const auto ratio = config::Value<double>::read(*encoder.find("mlp_ratio"), "mlp_ratio", 0);
    encoder.set("mlp_hidden", config::Value<std::int64_t>::dump(static_cast<std::int64_t>(static_cast<double>(width) * ratio)));
  }
  encoder.erase("mlp_ratio");
  compare_prefix_as_it_is(encoder);
  if (const Node* rotary = encoder.find("rotary"); rotary != nullptr && rotary->is_map()) {
    Node plain = *rotary;
    for (const char* of_training : {"shift", "jitter", "rescale"}) plain.erase(of_training);
    encoder.set("rotary", plain);
  }
  return encoder;
}

/// any_grid: whether the model takes images of any grid, so that the way in which it resizes positions matters not only on reading.
Node comparable_tower(const TowerSettings& tower, bool any_grid = false) {
  Node tree = config::dump(tower);
  Node encoder = comparable_encoder(*tree.find("encoder")), readout = *tree.find("readout");
  if (!any_grid) encoder.erase("position_resampling");
  if (text_at(readout, "name") == "gap" && text_at(encoder, "class_token") == "true" && text_at(readout, "skip_prefix") == "1")
    readout.set("skip_prefix", text_node("0"));  // with a class token, skip_prefix 0 and 1 both leave out only this token
  tree.set("encoder", encoder);
  tree.set("readout", readout);
  return tree;
}

Node comparable_model(const ModelSettings& model) {
  Node tree = config::dump(model);
  tree.set("image", comparable_tower(model.image, keeps_shapes(model.preprocessing)));
  if (model.text) tree.set("text", comparable_tower(*model.text));
  Node preprocessing = *tree.find("preprocessing");
  preprocessing.erase("crop_rounding");  // libraries round the crop's position differently, by at most one pixel
  for (const char* decoding : {"exif_rotation", "gray_range"})
    preprocessing.erase(decoding);  // other libraries' loaders decide about these
  if (text_at(preprocessing, "resize_mode") != "longest") preprocessing.erase("fill_color");
  tree.set("preprocessing", preprocessing);
  return tree;
}

std::string shown(const Node* node) {
  return node == nullptr ? "null" : config::to_json(*node).dump();
}

/// Keeps the text tower. The length of texts is a setting of an encoder's class only if it has positions for them.
void keep_only_text(Node& model) {
  for (const char* of_images : {"image", "preprocessing"}) model.erase(of_images);
  Node text = *model.find("text"), encoder = *text.find("encoder");
  if (text_at(encoder, "position_embedding") == "learned") return;
  encoder.erase("context_length");
  text.set("encoder", encoder);
  model.set("text", text);
}

/// Returns true if two settings have the same value. Numbers may be written differently, as 1e-06 and 1.0e-6 are.
bool same_setting(const Node* first, const Node* second) {
  if (first == nullptr || second == nullptr || !first->is_scalar() || !second->is_scalar()) return shown(first) == shown(second);
  const std::string &one = first->text(), &other = second->text();
  char *end_one = nullptr, *end_other = nullptr;
  const double a = std::strtod(one.c_str(), &end_one), b = std::strtod(other.c_str(), &end_other);
  return one == other || (!one.empty() && !other.empty() && *end_one == 0 && *end_other == 0 && a == b);
}

std::vector<std::string> compared(const Node& first, const Node& second, const std::string& path) {
  std::vector<std::string> out;
  config::compare_trees(first, second, path, same_setting, [&](const std::string& place, const Node* ours, const Node* theirs) {
    if (place.ends_with(".name"))
      out.push_back(concat(place.substr(0, place.rfind('.')), " is ", ours->text(), ", not ", theirs->text()));
    else
      out.push_back(concat(place, " is ", shown(ours), ", not ", shown(theirs)));
  });
  return out;
}

/// The id of CLIP's end token, which is the last token of each text. No other token of CLIP has a larger id.
constexpr const char* kClipEndText = "49407";

/// For CLIP's texts, several settings of the read-out `eos` select the same token, the end token. Replaces these settings by a single form,
/// so that they compare as equal. Must only be called if padding is not treated as text.
Node with_clip_end(Node readout) {
  if (text_at(readout, "name") != "eos") return readout;
  const Node* id = readout.find("eos_id");
  if (id != nullptr && !id->is_null() && id->text() != kClipEndText) return readout;
  readout.set("position", text_node("end of CLIP's tokens"));
  readout.erase("eos_id");
  return readout;
}

bool setting_is(const config::ModuleSettings& module, const char* key, const char* value) {
  const Node* found = module.settings.find(key);
  return found != nullptr && found->text() == value;
}

}  // namespace

std::vector<std::string> differences(const TowerSettings& first, const TowerSettings& second, const std::string& path) {
  return compared(comparable_tower(first), comparable_tower(second), path);
}

std::vector<std::string> differences(const ModelSettings& first, const ModelSettings& second) {
  return compared(comparable_model(resolve(first)), comparable_model(resolve(second)), "model");
}

std::vector<std::string> differences(const ModelFile& file, const ForeignModel& theirs) {
  ModelSettings ours = resolve(file.model), other = resolve(theirs.model);
  const bool padding_is_text = setting_is(file.tokenizer, "pad_is_text", "true");
  const bool clip_tokens = file.tokenizer.name.empty() || file.tokenizer.name == "clip-bpe";
  Node first = comparable_model(ours), second = comparable_model(other);
  if (!theirs.image_tower)
    for (Node* tree : {&first, &second}) keep_only_text(*tree);
  if (ours.text && other.text && clip_tokens && !padding_is_text)
    for (Node* tree : {&first, &second}) {
      Node text = *tree->find("text");
      text.set("readout", with_clip_end(*text.find("readout")));
      tree->set("text", text);
    }
  std::vector<std::string> out = compared(first, second, "model");
  const bool sees_padding = ours.text && setting_is(ours.text->encoder, "attention", "bidirectional");
  if (sees_padding && !file.tokenizer.name.empty() && padding_is_text != theirs.padding_is_text)
    out.push_back(concat("tokenizer.pad_is_text is ", padding_is_text ? "true, not false" : "false, not true"));
  return out;
}

}  // namespace tessera
