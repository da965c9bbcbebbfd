#include "src/data/sources/listed_pictures.h"

#include <algorithm>
#include <filesystem>

#include "src/base/printable.h"
#include "src/data/formats/json_items.h"
#include "src/data/formats/line_breaks.h"
#include "src/data/formats/regions.h"
#include "src/data/formats/sample_file.h"
#include "src/data/formats/text_fields.h"
#include "src/data/image/image_file.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::size_t kLookedFor = 20;  // number of the list's first images to look for; if none exists, the folder is reported as wrong

}  // namespace

ListedPicture bad_item(const JsonItem& item, const UserError& error) {
  ListedPicture out;
  out.name = item.place();
  out.detail().bad.emplace("bad_item", error.what());
  return out;
}

ListedPictures::ListedPictures(PictureList list) : list_(std::move(list)) {
  if (list_.pictures.empty()) user_error(list_.described, ": names no images");
  check_first();
  tell_line_breaks();
}

void ListedPictures::check_first() const {
  if (std::ranges::all_of(list_.pictures, &ListedPicture::is_bad)) user_error(list_.pictures[0].more->bad->what());
  std::vector<std::string> missing;
  std::error_code ignored;
  for (const ListedPicture& picture : list_.pictures) {
    if (picture.is_bad()) continue;
    if (std::filesystem::exists(path_of(picture.name), ignored)) return;
    missing.push_back(path_of(picture.name));
    if (missing.size() == kLookedFor) break;
  }
  user_error(list_.described, ": none of the first ", missing.size(),
             " images exists (the first: ", printable(missing.front()), "): check the folder of the images");
}

void ListedPictures::tell_line_breaks() const {
  LineBreaks breaks;
  for (const ListedPicture& picture : list_.pictures) breaks.add(picture.captions);
  if (breaks.are_many()) log::warning(list_.described, ": ", breaks.describe());
}

std::string ListedPictures::path_of(const std::string& name) const {
  return (std::filesystem::path(list_.folder) / name).string();  // an absolute name stays as it is
}

std::string ListedPictures::describe() const {
  return concat(list_.described, ", ", with_thousands(size()), " samples");
}

std::string ListedPictures::describe_fields(const std::vector<std::string>& needed) const {
  std::string text;
  for (const std::string& field : needed)
    if (const auto found = list_.columns.find(field); found != list_.columns.end())
      text += (text.empty() ? "In the list, " : ", ") + found->second;
  return text;
}

DataFile ListedPictures::data_file(std::int64_t index) const {
  const auto tables = std::ssize(list_.tables);
  const std::string& name = index < tables ? list_.tables.at(static_cast<std::size_t>(index))
                                           : list_.pictures.at(static_cast<std::size_t>(index - tables)).name;
  const std::filesystem::path path(name);
  if (index < tables) return {path.filename().string(), name};
  return {path.is_absolute() ? path.filename().string() : name, path_of(name)};
}

Sample ListedPictures::get(std::int64_t index) const {
  const ListedPicture& picture = list_.pictures.at(static_cast<std::size_t>(index));
  return read_keyed(picture.name, [&] { return read(picture); });
}

bool ListedPictures::lacks_caption(std::int64_t index) const {
  const ListedPicture& picture = list_.pictures.at(static_cast<std::size_t>(index));
  return picture.captions.empty() && (!picture.more || with_texts(picture).captions.empty());
}

std::vector<std::uint64_t> ListedPictures::image_ids() const {
  std::vector<std::uint64_t> out;
  FileIds ids;
  for (const ListedPicture& picture : list_.pictures) out.push_back(ids.of(path_of(picture.name)));
  return out;
}

// Returns a sample with only the captions and text fields.
Sample ListedPictures::with_texts(const ListedPicture& picture) const {
  Sample sample;
  sample.captions = picture.captions;
  if (!picture.more) return sample;
  for (std::size_t i = 0; i < picture.more->texts.size(); ++i)
    if (const auto& text = picture.more->texts[i]) sample.texts.push_back({*text, list_.text_fields[i]});
  if (sample.captions.empty()) set_captions_from_fields(sample);
  return sample;
}

Sample ListedPictures::read(const ListedPicture& picture) const {
  Sample sample = with_texts(picture);
  sample.key = picture.name;
  sample.label = picture.label;
  if (picture.is_bad()) throw *picture.more->bad;
  const std::string path = path_of(picture.name);
  sample.encoded = read_sample_file(path, "no_image");
  if (sample.encoded.empty()) throw SampleError("empty_image", path + ": the image has 0 bytes");
  if (!picture.more) return sample;
  const ListedPicture::More& more = *picture.more;
  sample.summary = more.summary;
  sample.object_tags = more.object_tags;
  sample.negatives = more.negatives;
  sample.objects = more.objects;
  sample.bad_boxes = more.bad_boxes;
  try {
    if (!more.region_file.empty())
      set_regions(read_sample_file(path_of(more.region_file), "no_regions"), list_.region_tensor, sample);
    if (!more.mask_file.empty()) sample.mask = read_mask(more.mask_file, sample.encoded);
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), concat("sample ", sample.key, ": ", error.what()));
  }
  return sample;
}

std::vector<std::uint8_t> ListedPictures::read_mask(const std::string& file, const std::string& picture) const {
  Mask mask = decode_mask(read_sample_file(path_of(file), "bad_mask"));
  const ImageHeader header = read_image_header(picture);
  if (header.height > 0 && (header.height != mask.height || header.width != mask.width))
    throw SampleError("bad_mask", concat("its mask ", printable(path_of(file)), " is ", mask.height, " x ", mask.width,
                                         " pixels, its image ", header.height, " x ", header.width));
  if (!list_.mask_classes.empty())
    for (std::uint8_t& value : mask.values) value = list_.mask_classes[value];
  return std::move(mask.values);
}

}  // namespace tessera
