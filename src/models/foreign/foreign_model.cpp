#include <filesystem>
#include <set>

#include "src/models/foreign/foreign_config.h"
#include "src/models/foreign/timm.h"
#include "src/models/foreign/transformers.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/pytorch_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/foreign/foreign_model.h>
#include <tessera/models/open_clip.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kIndexName = "model.safetensors.index.json";

bool is_timm(const nlohmann::json& config) {
  return config.contains("architecture") && config.contains("pretrained_cfg");
}

NamedTensors load_shards(const std::string& folder) {
  const std::string index = folder + "/" + kIndexName;
  const ForeignConfig map = ForeignConfig::of_file(index).section("weight_map");
  std::set<std::string> files;
  for (const auto& [name, file] : map.json().items()) files.insert(map.get<std::string>(name, ""));
  NamedTensors out;
  for (const std::string& file : files) {
    const std::string path = folder + "/" + file;
    if (file.find('/') != std::string::npos || !fs::is_regular_file(path))
      user_error(index, ": names the file ", file, ", which is not in the folder: fetch the whole model again");
    out.merge(io::load_safetensors(path).tensors);
  }
  for (const auto& [name, file] : map.json().items())
    if (!out.contains(name)) user_error(index, ": says that ", file.dump(), " holds tensor ", name, ", which it does not");
  return out;
}

const PartLeftOut* part_of(const std::vector<PartLeftOut>& parts, const std::string& name) {
  for (const PartLeftOut& part : parts)
    if (name_fits(part.names, name)) return &part;
  return nullptr;
}

}  // namespace

bool is_foreign_folder(const std::string& path) {
  std::error_code unknown;
  const std::string config = path + "/" + kConfigName, weights = path + "/model.safetensors";
  if (!fs::is_regular_file(config, unknown)) return false;
  if (fs::exists(path + "/latest") || fs::exists(path + "/open_clip_config.json")) return false;
  if (fs::is_regular_file(weights, unknown) && is_model_file(weights)) return false;
  const nlohmann::json json = nlohmann::json::parse(io::read_file(config), nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() || (json.is_object() && (json.contains("model_type") || is_timm(json)));
}

ForeignModel read_foreign_folder(const std::string& folder) {
  const ForeignConfig config = ForeignConfig::of_file(folder + "/" + kConfigName);
  ForeignModel out = is_timm(config.json()) ? timm_model(config) : transformers_model(config, folder);
  out.model = resolve(out.model, config.path());
  return out;
}

NamedTensors load_foreign_weights(const std::string& folder) {
  if (fs::is_regular_file(folder + "/" + kIndexName)) return load_shards(folder);
  if (fs::is_regular_file(folder + "/model.safetensors"))
    return io::load_safetensors(folder + "/model.safetensors").tensors;
  if (fs::is_regular_file(folder + "/pytorch_model.bin")) return io::load_pytorch_file(folder + "/pytorch_model.bin");
  user_error(folder, ": holds no weights: expected model.safetensors, ", kIndexName, " or pytorch_model.bin");
}

NamedTensors own_tensors(const ForeignModel& foreign, const NamedTensors& theirs, NamedTensors own,
                         const std::string& origin) {
  for (const char* name : {"logit_scale", "logit_bias"}) own.emplace(name, at::Tensor());
  RenamedTensors renamed = read_by_rules(foreign.rules, theirs, own, origin);
  std::set<std::string> said;
  for (const std::string& name : renamed.left_over) {
    const PartLeftOut* part = part_of(foreign.left_out, name);
    if (part == nullptr) {
      renamed.tensors.emplace(name, theirs.at(name));  // load_state() says that it is left over
      continue;
    }
    if (!part->what.empty() && said.insert(part->what).second)
      log::info(origin, ": ", part->what, " (", part->names, ") has no counterpart here and is left out");
  }
  return renamed.tensors;
}

ModelFile load_foreign_model(const std::string& folder) {
  const ForeignModel foreign = read_foreign_folder(folder);
  if (!foreign.image_tower) user_error(folder, ": holds a text tower alone: name it at model.text.from, beside an image tower");
  DualEncoder model(foreign.model, folder);
  ModelFile file = from_named_tensors(own_tensors(foreign, load_foreign_weights(folder), model.state_dict(), folder),
                                      foreign.model, folder);
  file.tokenizer = {};
  file.vocabulary.clear();
  return file;
}

}  // namespace tessera
