#include <unordered_map>
#include <utility>

#include "src/data/formats/captions.h"
#include "src/data/formats/json_items.h"
#include "src/data/sources/coco_captions.h"
#include "src/data/sources/listed_pictures.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

struct CocoCaption {
  std::int64_t image;
  std::string text;
};

}  // namespace

std::shared_ptr<IndexedSource> make_coco_captions(const CocoCaptionsSettings& settings) {
  if (settings.annotations.empty())
    user_error("coco_captions: annotations is not set; expected a file such as captions_train2017.json");
  config::require(settings.annotations);
  PictureList list{concat("coco_captions ", settings.annotations), settings.images};
  std::unordered_map<std::int64_t, std::size_t> numbers;  // indices of images, by id
  std::vector<CocoCaption> captions;
  std::size_t bad_captions = 0;
  std::string first_bad;
  for_each_item(settings.annotations,
                {{"images",
                  [&](const JsonItem& item) {
                    ListedPicture picture;
                    std::int64_t number = 0;
                    try {
                      picture.name = item.text("file_name");
                      number = item.number("id");
                    } catch (const UserError& error) {
                      list.pictures.push_back(bad_item(item, error));
                      return;
                    }
                    if (!numbers.emplace(number, list.pictures.size()).second)
                      user_error(item.place(), ": id ", number, " is already used by an earlier item");
                    list.pictures.push_back(std::move(picture));
                  }},
                 {"annotations", [&](const JsonItem& item) {
                    try {
                      captions.push_back({item.number("image_id"), item.text_or_empty("caption")});
                    } catch (const UserError& error) {
                      if (bad_captions++ == 0) first_bad = error.what();
                    }
                  }}});
  if (captions.empty() && bad_captions > 0) user_error(first_bad);
  if (bad_captions > 0)
    log::warning(settings.annotations, ": ", bad_captions, " of ", captions.size() + bad_captions,
                 " captions are left out (the first: ", first_bad, ")");
  std::int64_t strangers = 0;
  for (CocoCaption& caption : captions) {
    const auto found = numbers.find(caption.image);
    if (found == numbers.end())
      ++strangers;
    else
      add_caption(caption.text, list.pictures[found->second].captions);
  }
  if (strangers > 0)
    log::warning(settings.annotations, ": ", strangers, " of ", captions.size(),
                 " captions belong to images that `images` does not list");
  list.tables = {settings.annotations};
  return std::make_shared<ListedPictures>(std::move(list));
}

}  // namespace tessera
