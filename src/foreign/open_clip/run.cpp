#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "src/foreign/architectures.h"
#include "src/foreign/open_clip_run.h"
#include <tessera/base/error.h>
#include <tessera/config/fields.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using nlohmann::json;

/// Returns a parameter of one or several values as JSON. A list of one value becomes this value.
json one_or_several(const OpenClipParameters& run, const char* name) {
  const json value = config::to_json(config::parse_yaml(run.yaml(name), name));
  return value.is_array() && value.size() == 1 ? value[0] : value;
}

/// Returns the configuration from which the run's parameters start: that of a folder (local-dir:FOLDER) or of a named architecture, with
/// the preprocessing that OpenCLIP stores for a pretrained tag.
json base_config(const OpenClipParameters& run) {
  constexpr std::string_view kFolder = "local-dir:";
  const std::string& model = run.text("model");
  if (model.starts_with("hf-hub:"))
    user_error("model is ", model, ": Tessera downloads nothing: put its open_clip_config.json next to the weights");
  if (model.starts_with(kFolder)) {
    const std::string file = model.substr(kFolder.size()) + "/open_clip_config.json";
    json config = json::parse(io::read_file(file), nullptr, /*allow_exceptions=*/false);
    if (!config.is_object() || !config.contains("model_cfg"))
      user_error(file, ": not OpenCLIP's configuration: expected a JSON object with model_cfg");
    return config;
  }
  const std::string name = open_clip_model_name(run);
  json config = {{"model_cfg", open_clip_architecture(name)}, {"preprocess_cfg", json::object()}};
  const json tag = run.has("pretrained") ? open_clip_pretrained(name).value(open_clip_tag_name(run), json::object()) : json::object();
  for (const char* key : {"mean", "std", "interpolation", "resize_mode"})
    if (tag.contains(key)) config["preprocess_cfg"][key] = tag.at(key);
  return config;
}

}  // namespace

std::string open_clip_model_name(const OpenClipParameters& run) {
  std::string name = run.text("model");
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

std::string open_clip_tag_name(const OpenClipParameters& run) {
  std::string name = run.text("pretrained");
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return name;
}

json open_clip_run_config(const OpenClipParameters& run) {
  json config = base_config(run);
  json &model = config["model_cfg"], &preprocessing = config["preprocess_cfg"];
  if (run.has("force_quick_gelu")) model["quick_gelu"] = true;
  if (run.has("force_patch_dropout")) model["vision_cfg"]["patch_dropout"] = run.number("force_patch_dropout");
  if (run.has("force_image_size")) {
    model["vision_cfg"]["image_size"] = one_or_several(run, "force_image_size");
    preprocessing.erase("size");
  }
  if (run.has("force_context_length")) model["text_cfg"]["context_length"] = run.whole("force_context_length");
  for (const char* key : {"mean", "std"}) {
    const std::string name = std::string("image_") + key;
    if (!run.has(name)) continue;
    const json value = one_or_several(run, name.c_str());
    preprocessing[key] = value.is_array() ? value : json{value, value, value};
  }
  if (run.has("image_interpolation"))  // for evaluation, OpenCLIP's `random` is bicubic
    preprocessing["interpolation"] = run.text("image_interpolation") == "bilinear" ? "bilinear" : "bicubic";
  if (run.has("image_resize_mode")) preprocessing["resize_mode"] = run.text("image_resize_mode");
  return config;
}

}  // namespace tessera
