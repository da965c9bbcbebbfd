#include "src/models/setting_differences.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using config::Node;

bool is_compared(const std::string& key) {
  static const std::set<std::string> of_training = {"drop_path",          "patch_dropout", "grad_checkpointing", "layer_scale_init",
                                                    "position_resampling", "skip_padding",  "kept_positions"};
  static const std::set<std::string> sizes = {"image_size", "vocab_size"}, files = {"merges", "model", "vocab"};
  // Both ways to find the end of a text (`position` of the read-out eos) find the same token.
  return key != "position" && !of_training.contains(key) && !sizes.contains(key) && !files.contains(key);
}

std::string shown(const Node& value) {
  return value.is_scalar() ? value.text() : dump_utf8(config::to_json(value));
}

Node member(const Node& map, const std::string& key) {
  const Node* found = map.find(key);
  return found == nullptr ? Node() : *found;
}

/// Returns the part of a model's settings that concerns these towers.
Node of_towers(const ModelSettings& model, ComparedTowers towers) {
  Node out = config::dump(model);
  if (!towers.image)
    for (const char* key : {"image", "preprocessing"}) out.erase(key);
  if (!towers.text || !model.text) out.erase("text");
  if (Node text = member(out, "text"); text.is_map()) {
    Node encoder = member(text, "encoder");
    encoder.erase("context_length");  // it follows the tokenizer, whose settings are compared as well
    text.set("encoder", encoder);
    out.set("text", text);
  }
  return out;
}

}  // namespace

std::vector<std::string> setting_differences(const Node& here, const Node& there, const std::string& path) {
  const Node name = member(here, "name"), other_name = member(there, "name");
  if (name.text() != other_name.text()) return setting_differences(name, other_name, path + ".name");
  if (!here.is_map() || !there.is_map()) {
    if (config::to_json(here) == config::to_json(there)) return {};
    return {concat(path, " is ", shown(here), " instead of ", shown(there))};
  }
  std::vector<std::string> out;
  Node all = here;
  for (const auto& [key, value] : there.members())
    if (here.find(key) == nullptr) all.set(key, value);
  for (const auto& [key, value] : all.members()) {
    if (!is_compared(key)) continue;
    for (std::string& difference : setting_differences(member(here, key), member(there, key), path + "." + key))
      out.push_back(std::move(difference));
  }
  return out;
}

std::vector<std::string> setting_differences(const ModelSettings& here, const ModelSettings& there, ComparedTowers towers) {
  towers.text = towers.text && here.text && there.text;
  return setting_differences(of_towers(here, towers), of_towers(there, towers), "model");
}

}  // namespace tessera
