#include "src/data/sources/option_set.h"
#include "src/data/sources/options/layouts.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

void read_option_file(const std::string& path, const std::string& layout, OptionBuilder& out) {
  if (layout == "svo_probes") return read_svo_probes(path, out);
  if (layout == "foil") return read_foil(path, out);
  if (layout == "mmvp") return read_mmvp(path, out);
  const JsonOptionLayout* json = json_option_layout(layout);
  if (json == nullptr) user_error("there is no layout of options ", layout, suggestion(layout, option_layouts()));
  read_json_options(path, *json, out);
}

}  // namespace

OptionSet read_options(const OptionSettings& settings) {
  if (settings.annotations.items.empty())
    user_error("options: annotations is not set; expected the files of layout ", settings.layout);
  if (settings.images.empty()) user_error("options: images is not set; expected the folder of the images");
  config::require(settings.images);
  OptionBuilder builder(settings);
  const std::vector<std::string> paths = expand_paths(settings.annotations, ".json");
  for (const std::string& path : paths) read_option_file(path, settings.layout, builder);
  return std::move(builder).finished(paths);
}

}  // namespace tessera
