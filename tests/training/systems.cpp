#include "tests/training/systems.h"

#include <filesystem>
#include <map>

#include "tests/training/any_views.h"
#include "tests/training/dino_run.h"
#include "tests/training/pyramid_run.h"
#include "tests/training/stair_run.h"
#include "tests/training/tiny_run.h"

namespace tessera {

Config text_group_config(const std::string& run, const std::vector<std::string>& overrides) {
  return tiny_config(run, with(overrides_of("{name: text_group, decoder: {context_length: 24}} with groups"), overrides));
}

Config system_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides) {
  using MakeConfig = Config (*)(const std::string&, const std::vector<std::string>&);
  static const std::map<std::string, MakeConfig> own_towers = {{"dino", dino_config},
                                                               {"silc", silc_config},
                                                               {"siglip2", siglip2_config},
                                                               {"stair", stair_config},
                                                               {"text_group", text_group_config}};
  const std::string place = folder + "/" + run, shards = folder + "/shards", pattern = shards + "/*.tar";
  if (const auto own = own_towers.find(kind); own != own_towers.end()) return own->second(place, overrides);
  if (kind == "pyramidclip") {
    if (!std::filesystem::exists(shards)) write_pyramid_shards(shards);
    return pyramid_config(place, pattern, overrides);
  }
  if (kind == "any_views") {
    if (!std::filesystem::exists(shards)) write_shards_with_holes(shards, 48);
    return any_views_config(place, pattern, overrides);
  }
  return tiny_config(place, with({"objective=" + kind}, overrides));
}

Config frozen_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides) {
  std::string frozen = "visual.conv1.*, visual.class_embedding, visual.positional_embedding, visual.ln_*, visual.transformer.*";
  if (kind == "text_group") frozen = "visual.patch_embed.*, visual.pos_embed, visual.layers.*, visual.norm.*";
  if (kind == "pyramidclip") frozen += ", visual.roi_*";
  std::vector<std::string> all = {"data.loader.augmentation={crop: evaluation}", "parameters.frozen=[" + frozen + "]"};
  if (kind == "pyramidclip") all.emplace_back("data.loader.views={global: {crop: evaluation}, local: {crop: evaluation}}");
  if (kind == "dino")
    all.insert(all.end(),
               {"data.loader.views={global: {count: 2, crop: evaluation, flip: 0}, local: {count: 2, crop: evaluation, "
                "image_size: 16, color_jitter: {probability: 0}}}",
                "model.image.encoder.drop_path=0"});
  return system_config(kind, folder, run, with(all, overrides));
}

Config cached_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides) {
  return frozen_config(kind, folder, run, with({"data.features={folder: " + folder + "/features}"}, overrides));
}

}  // namespace tessera
