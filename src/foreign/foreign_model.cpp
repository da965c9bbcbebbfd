#include <array>
#include <filesystem>
#include <set>

#include "src/io/pytorch_file.h"
#include "src/foreign/foreign_config.h"
#include "src/foreign/foreign_model.h"
#include "src/foreign/timm.h"
#include "src/foreign/transformers_family.h"
#include "src/foreign/open_clip.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr std::array<const char*, 2> kIndexNames = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};

bool is_timm(const nlohmann::json& config) {
  return config.contains("architecture") && config.contains("pretrained_cfg");
}

/// Returns the files that an index names. The index maps each tensor to its file.
std::vector<std::string> shards_of(const std::string& folder, const std::string& index) {
  const ForeignConfig map = ForeignConfig::of_file(index).section("weight_map");
  std::set<std::string> files;
  for (const auto& [name, file] : map.json().items()) files.insert(map.get<std::string>(name, ""));
  std::vector<std::string> out;
  for (const std::string& file : files) {
    if (file.find('/') != std::string::npos || !fs::is_regular_file(folder + "/" + file))
      user_error(index, ": names the file ", file, ", which is not in the folder: fetch the whole model again");
    out.push_back(folder + "/" + file);
  }
  return out;
}

void check_index(const std::string& index, const NamedTensors& tensors) {
  const ForeignConfig map = ForeignConfig::of_file(index).section("weight_map");
  for (const auto& [name, file] : map.json().items())
    if (!tensors.contains(io::without_wrappers({{name, at::Tensor()}}).begin()->first))
      user_error(index, ": says that ", file.dump(), " holds tensor ", name, ", but it does not");
}

/// Returns the index of a folder's shards, or an empty string if its weights are one file.
std::string index_of(const std::string& folder) {
  for (const char* name : kIndexNames)
    if (fs::is_regular_file(folder + "/" + name)) return folder + "/" + name;
  return {};
}

const PartLeftOut* part_of(const std::vector<PartLeftOut>& parts, const std::string& name) {
  for (const PartLeftOut& part : parts)
    if (name_fits(part.names, name)) return &part;
  return nullptr;
}

}  // namespace

bool is_foreign_folder(const std::string& path) {
  std::error_code unknown;
  const std::string config = path + "/" + kConfigFile, weights = path + "/model.safetensors";
  if (!fs::is_regular_file(config, unknown)) return false;
  if (fs::exists(path + "/latest") || fs::exists(path + "/open_clip_config.json")) return false;
  if (fs::is_regular_file(weights, unknown) && is_model_file(weights)) return false;
  const nlohmann::json json = nlohmann::json::parse(io::read_file(config), nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() || (json.is_object() && (json.contains("model_type") || is_timm(json)));
}

ForeignModel read_foreign_folder(const std::string& folder) {
  const ForeignConfig config = ForeignConfig::of_file(folder + "/" + kConfigFile);
  ForeignModel out = is_timm(config.json()) ? timm_model(config) : transformers_model(config, folder);
  out.model = resolve(out.model, config.path());
  return out;
}

std::vector<std::string> foreign_weight_files(const std::string& folder) {
  // The order of preference: shards of safetensors, a single safetensors file, shards in an older format, a single older file.
  if (fs::is_regular_file(folder + "/" + kIndexNames[0])) return shards_of(folder, folder + "/" + kIndexNames[0]);
  if (fs::is_regular_file(folder + "/model.safetensors")) return {folder + "/model.safetensors"};
  if (const std::string index = index_of(folder); !index.empty()) return shards_of(folder, index);
  if (fs::is_regular_file(folder + "/pytorch_model.bin")) return {folder + "/pytorch_model.bin"};
  user_error(folder, ": holds no weights: expected model.safetensors or pytorch_model.bin, or ", kIndexNames[0], " or ", kIndexNames[1],
             " with the files that it names");
}

NamedTensors load_foreign_weights(const std::string& folder, const std::string& state) {
  const std::vector<std::string> files = foreign_weight_files(folder);
  NamedTensors out;
  for (const std::string& file : files) out.merge(io::load_tensors(file, state));
  const std::string index = index_of(folder);
  const std::string only = fs::path(files.front()).filename().string();
  if (!index.empty() && only != "model.safetensors") check_index(index, out);
  return out;
}

NamedTensors own_tensors(const ForeignModel& foreign, const NamedTensors& theirs, NamedTensors own,
                         const std::string& origin) {
  for (const char* name : {"logit_scale", "logit_bias"}) own.emplace(name, at::Tensor());
  RenamedTensors renamed = read_by_rules(foreign.rules, theirs, own, origin);
  std::set<std::string> said;
  for (const std::string& name : renamed.left_over) {
    const PartLeftOut* part = part_of(foreign.left_out, name);
    if (part == nullptr) {
      renamed.tensors.emplace(name, theirs.at(name));  // kept, so that load_state() reports this tensor as left over
      continue;
    }
    if (!part->what.empty() && said.insert(part->what).second)
      log::info(origin, ": ", part->what, " (", part->names, ") has no counterpart here and is left out");
  }
  return renamed.tensors;
}

ModelFile load_foreign_model(const std::string& folder, const CheckpointOptions& options) {
  ForeignModel foreign = read_foreign_folder(folder);
  if (options.image_size) foreign.model = with_image_size(foreign.model, *options.image_size);
  if (!foreign.image_tower) user_error(folder, ": contains only a text tower: set it as model.text.from, together with an image tower");
  DualEncoder model(foreign.model, folder);
  // Some families are published with the positions of larger images than their preprocessing makes.
  ModelFile file = from_named_tensors(own_tensors(foreign, load_foreign_weights(folder, options.state), model.state_dict(), folder),
                                      foreign.model, folder, options.image_size ? log::Level::warning : log::Level::info);
  file.tokenizer = {};
  file.vocabulary.clear();
  return file;
}

}  // namespace tessera
