#include "src/foreign/architectures.h"
#include "src/foreign/foreign_config.h"
#include "src/foreign/open_clip.h"
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

constexpr std::string_view kQuickGeluSuffix = "-quickgelu";

const ForeignConfig& architecture_table() {
  static const ForeignConfig table = ForeignConfig::of_file(config::shipped_folder() + "/architectures/open_clip.json");
  return table;
}

}  // namespace

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const auto& [name, row] : architecture_table().json().at("models").items()) names.push_back(name);
  return names;
}

nlohmann::json open_clip_architecture(const std::string& name) {
  const nlohmann::json& models = architecture_table().json().at("models");
  if (models.contains(name)) return models.at(name);
  const bool quick = name.ends_with(kQuickGeluSuffix);
  const std::string base = quick ? name.substr(0, name.size() - kQuickGeluSuffix.size()) : "";
  if (!models.contains(base)) user_error("no architecture named ", name, suggestion(name, architecture_names()));
  nlohmann::json out = models.at(base);
  out["quick_gelu"] = true;
  return out;
}

nlohmann::json open_clip_pretrained(const std::string& name) {
  return architecture_table().section("pretrained").get<nlohmann::json>(name, nlohmann::json::object());
}

ForeignModel described_architecture(const std::string& name) {
  const nlohmann::json file = {{"model_cfg", open_clip_architecture(name)}};
  return open_clip_model(file.dump(), concat(architecture_table().path(), ": ", name));
}

ModelSettings architecture(const std::string& name) {
  return described_architecture(name).model;
}

}  // namespace tessera
