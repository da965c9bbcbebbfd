// COCO's captions and Karpathy's splits.
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/sources/benchmarks.h"
#include "src/data/sources/listed_pictures.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {

std::shared_ptr<IndexedSource> make_coco_captions(const CocoCaptionsSettings& settings) {
  const config::FilePath& path = settings.annotations;
  if (path.empty()) user_error("coco_captions: annotations is not set; expected a file such as captions_train2017.json");
  config::require(path);
  PictureList list{concat("coco_captions ", path), settings.images};
  std::unordered_map<std::int64_t, std::size_t> numbers;         // indices of images, by id
  std::vector<std::pair<std::int64_t, std::string>> captions;  // ids of images, and texts
  std::size_t bad_captions = 0, strangers = 0;
  std::string first_bad;
  const auto read_image = [&](const JsonItem& item) {
    std::optional<std::int64_t> number;
    ListedPicture picture;
    try {
      picture.name = item.text("file_name");
      number = item.number("id");
    } catch (const UserError& error) {
      picture = bad_item(item, error);
    }
    if (number && !numbers.emplace(*number, list.pictures.size()).second)
      user_error(item.place(), ": id ", *number, " is already used by an earlier item");
    list.pictures.push_back(std::move(picture));
  };
  const auto read_caption = [&](const JsonItem& item) {
    try {
      captions.emplace_back(item.number("image_id"), item.text_or_empty("caption"));
    } catch (const UserError& error) {
      if (bad_captions++ == 0) first_bad = error.what();
    }
  };
  for_each_item(path, {{"images", read_image}, {"annotations", read_caption}});
  if (captions.empty() && bad_captions > 0) user_error(first_bad);
  if (bad_captions > 0)
    log::warning(path, ": ", bad_captions, " of ", captions.size() + bad_captions, " captions are left out (the first: ", first_bad, ")");
  for (const auto& [image, text] : captions) {
    const auto found = numbers.find(image);
    if (found == numbers.end())
      ++strangers;
    else
      add_caption(text, list.pictures[found->second].captions);
  }
  if (strangers > 0)
    log::warning(path, ": ", strangers, " of ", captions.size(), " captions belong to images that `images` does not list");
  list.tables = {path};
  return std::make_shared<ListedPictures>(std::move(list));
}

std::shared_ptr<IndexedSource> make_karpathy(const KarpathySettings& settings) {
  const config::FilePath& path = settings.annotations;
  if (path.empty()) user_error("karpathy: annotations is not set; expected a file such as dataset_coco.json");
  config::require(path);
  PictureList list{concat("karpathy ", path, " (", settings.split, ")"), settings.images};
  std::map<std::string, std::int64_t> found;
  for (const std::string& name : split(settings.split, '+')) found[name] = 0;
  const std::map<std::string, std::int64_t> wanted = found;
  std::optional<UserError> first_problem;
  for_each_item(path, {{"images", [&](const JsonItem& item) {
    try {
      const std::string split = item.text("split");
      ++found[split];
      if (!wanted.contains(split)) return;
      ListedPicture picture;
      picture.name = (std::filesystem::path(item.text_or_empty("filepath")) / item.text("filename")).generic_string();
      const nlohmann::json& sentences = item.list("sentences");
      for (std::size_t i = 0; i < sentences.size(); ++i)
        add_caption(JsonItem(sentences[i], concat(item.place(), ".sentences[", i, "]")).text("raw"), picture.captions);
      list.pictures.push_back(std::move(picture));
    } catch (const UserError& error) {
      if (!first_problem) first_problem = error;
      list.pictures.push_back(bad_item(item, error));
    }
  }}});
  for (const auto& [name, none] : wanted) {
    if (found.at(name) > 0) continue;
    if (found.size() == wanted.size() && first_problem) throw *first_problem;  // no item says its split
    std::vector<std::string> there;
    for (const auto& [other, count] : found)
      if (count > 0) there.push_back(concat(other, " (", count, " images)"));
    user_error(path, ": has no split \"", name, "\"; there are: ", there.empty() ? "none" : printable(join_names(there), 500));
  }
  list.tables = {path};
  return std::make_shared<ListedPictures>(std::move(list));
}

}  // namespace tessera
