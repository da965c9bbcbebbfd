#include "src/data/sources/karpathy.h"

#include <filesystem>
#include <map>
#include <optional>

#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/json_items.h"
#include "src/data/sources/listed_pictures.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

ListedPicture karpathy_picture(const JsonItem& item) {
  ListedPicture picture;
  picture.name = (std::filesystem::path(item.text_or_empty("filepath")) / item.text("filename")).generic_string();
  const nlohmann::json& sentences = item.list("sentences");
  for (std::size_t i = 0; i < sentences.size(); ++i)
    add_caption(JsonItem(sentences[i], concat(item.place(), ".sentences[", i, "]")).text("raw"), picture.captions);
  return picture;
}

}  // namespace

std::shared_ptr<IndexedSource> make_karpathy(const KarpathySettings& settings) {
  if (settings.annotations.empty())
    user_error("karpathy: annotations is not set; expected a file such as dataset_coco.json");
  config::require(settings.annotations);
  PictureList list{concat("karpathy ", settings.annotations, " (", settings.split, ")"), settings.images};
  std::map<std::string, std::int64_t> found;
  for (const std::string& name : split(settings.split, '+')) found[name] = 0;
  const std::map<std::string, std::int64_t> wanted = found;
  std::optional<std::string> first_problem;
  const auto read = [&](const JsonItem& item) {
    try {
      const std::string name = item.text("split");
      ++found[name];
      if (wanted.contains(name)) list.pictures.push_back(karpathy_picture(item));
    } catch (const UserError& error) {
      if (!first_problem) first_problem = error.what();
      list.pictures.push_back(bad_item(item, error));
    }
  };
  for_each_item(settings.annotations, {{"images", read}});
  for (const auto& [name, none] : wanted) {
    if (found.at(name) > 0) continue;
    if (found.size() == wanted.size() && first_problem) throw UserError(*first_problem);  // no item says its split
    std::vector<std::string> there;
    for (const auto& [other, count] : found)
      if (count > 0) there.push_back(concat(other, " (", count, " images)"));
    user_error(settings.annotations, ": has no split \"", name,
               "\"; there are: ", there.empty() ? "none" : printable(join_names(there), 500));
  }
  list.tables = {settings.annotations};
  return std::make_shared<ListedPictures>(std::move(list));
}

}  // namespace tessera
