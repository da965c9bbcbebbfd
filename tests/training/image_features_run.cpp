#include "tests/training/image_features_run.h"

#include <filesystem>

#include "tests/training/dino_run.h"
#include "tests/training/pyramid_run.h"
#include "tests/training/stair_run.h"
#include "tests/training/text_group_run.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

constexpr const char* kViews = "data.loader.views={global: {crop: evaluation}, local: {crop: evaluation}}";
constexpr const char* kCountedViews =
    "data.loader.views={global: {count: 2, crop: evaluation, flip: 0}, local: {count: 2, crop: evaluation, image_size: "
    "16, "
    "color_jitter: {probability: 0}}}";

// Returns overrides that freeze the image encoder of tiny_yaml.
std::vector<std::string> frozen_encoder() {
  return {"data.loader.augmentation={crop: evaluation}",
          "parameters.frozen=[visual.conv1.*, visual.class_embedding, visual.positional_embedding, visual.ln_*, "
          "visual.transformer.*]"};
}

}  // namespace

Config frozen_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides) {
  std::vector<std::string> all = frozen_encoder();
  const auto add = [&](const std::vector<std::string>& more) { all.insert(all.end(), more.begin(), more.end()); };
  const std::string place = folder + "/" + run;
  if (kind == "stair") {
    add(overrides);
    return stair_config(place, all);
  }
  if (kind == "text_group") {
    all[1] = "parameters.frozen=[visual.patch_embed.*, visual.pos_embed, visual.layers.*, visual.norm.*]";
    add(overrides);
    return text_group_config(place, all);
  }
  if (kind == "dino") {
    add({kCountedViews, "model.image.encoder.drop_path=0"});
    add(overrides);
    return dino_config(place, all);
  }
  if (kind == "pyramidclip") {
    const std::string shards = folder + "/shards";
    if (!std::filesystem::exists(shards)) write_pyramid_shards(shards);
    add({kViews, all[1].substr(0, all[1].size() - 1) + ", visual.roi_*]"});
    add(overrides);
    return pyramid_config(place, shards + "/*.tar", all);
  }
  add({"objective=" + kind});
  add(overrides);
  return tiny_config(place, all);
}

Config cached_config(const std::string& kind, const std::string& folder, const std::string& run,
                     std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), "data.features={folder: " + folder + "/features}");
  return frozen_config(kind, folder, run, overrides);
}

}  // namespace tessera
