#include "src/models/setting_differences.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/config/values.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using config::Node;

// Returns true if a part of the path names a setting that is not compared.
bool is_left_out(const std::string& path) {
  static const std::set<std::string> names = {
      "drop_path", "patch_dropout", "grad_checkpointing", "layer_scale_init", "position_resampling", "skip_padding", "kept_positions",
      "image_size", "vocab_size", "merges", "model", "vocab",
      "position"};  // both ways to find the end of a text (`position` of the read-out eos) find the same token
  const std::vector<std::string> parts = split(path, '.');
  return std::any_of(parts.begin() + 1, parts.end(), [&](const std::string& part) { return names.contains(part); });
}

std::string shown(const Node* value) {
  return value == nullptr ? "null" : value->is_scalar() ? value->text() : dump_utf8(config::to_json(*value));
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
  std::vector<std::string> out;
  const auto json = [](const Node* node) { return node == nullptr ? nlohmann::json() : config::to_json(*node); };
  config::compare_trees(here, there, path, [&](const Node* a, const Node* b) { return json(a) == json(b); },
                        [&](const std::string& place, const Node* ours, const Node* theirs) {
                          if (!is_left_out(place)) out.push_back(concat(place, " is ", shown(ours), " instead of ", shown(theirs)));
                        });
  return out;
}

std::vector<std::string> setting_differences(const ModelSettings& here, const ModelSettings& there, ComparedTowers towers) {
  towers.text = towers.text && here.text && there.text;
  return setting_differences(of_towers(here, towers), of_towers(there, towers), "model");
}

}  // namespace tessera
