#include <map>

#include "src/data/formats/json_items.h"
#include "src/data/sources/options/layouts.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

struct FoilCaptions {
  std::int64_t image = 0;
  std::string right;
  std::vector<std::string> foils;
};

}  // namespace

void read_foil(const std::string& path, OptionBuilder& out) {
  std::map<std::int64_t, std::string> files;      // image files, by id
  std::map<std::int64_t, FoilCaptions> captions;  // a right caption and its foils, by their common id
  for_each_item(path, {{"images", [&](const JsonItem& item) { files[item.number("id")] = item.text("file_name"); }},
                       {"annotations", [&](const JsonItem& item) {
                          FoilCaptions& own = captions[item.number("id")];
                          own.image = item.number("image_id");
                          if (item.flag("foil"))
                            own.foils.push_back(item.text("caption"));
                          else
                            own.right = item.text("caption");
                        }}});
  for (const auto& [id, own] : captions) {
    const std::string place = concat(path, ": caption ", id);
    const auto file = files.find(own.image);
    if (file == files.end()) user_error(place, ": belongs to image ", own.image, ", which `images` does not list");
    if (own.right.empty() || own.foils.empty()) {
      out.skip("no_pair");
      continue;
    }
    const std::int64_t picture = out.picture(file->second);
    for (const std::string& foil : own.foils) out.add({{picture}, {own.right, foil}, {}}, place);
  }
}

}  // namespace tessera
