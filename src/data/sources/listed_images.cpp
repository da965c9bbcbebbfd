#include "src/data/sources/listed_images.h"

#include <algorithm>
#include <filesystem>

#include "src/base/printable.h"
#include "src/data/formats/image_endings.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/regions.h"
#include "src/data/formats/data_files.h"
#include "src/data/image/image_file.h"
#include "src/data/sources/rows.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kImagesPerAhead = 16;  // number of remote images to read ahead for each shard of data.cache.ahead
constexpr std::size_t kLookedFor = 20;  // number of the list's first images to look for; if none exists, the folder is reported as wrong

void read_mask(const std::string& path, const ImageList& list, Sample& sample) {
  Mask mask = decode_mask(read_sample_file(path, "bad_mask"));
  const ImageHeader header = read_image_header(sample.encoded);
  if (header.height > 0 && (header.height != mask.height || header.width != mask.width))
    throw SampleError("bad_mask", concat("its mask ", printable(path), " is ", mask.height, " x ", mask.width, " pixels, its image ",
                                         header.height, " x ", header.width));
  if (!list.mask_classes.empty())
    for (std::uint8_t& value : mask.values) value = list.mask_classes[value];
  sample.mask = std::move(mask.values);
}

}  // namespace

ListedImage bad_item(const JsonItem& item, const UserError& error) {
  ListedImage out;
  out.name = item.place();
  out.detail().bad.emplace("bad_item", error.what());
  return out;
}

std::string find_image(const std::string& folder, const std::string& name) {
  if (remote::is_remote(folder)) return name;
  const std::string last = fs::path(name).filename().string();
  std::vector<std::string> candidates = {name, last};
  if (!fs::path(last).has_extension()) {
    const bool number = !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
    std::vector<std::string> stems = {name, last};
    if (number && last.size() < 12) stems.push_back(std::string(12 - last.size(), '0') + last);
    candidates.clear();
    for (const std::string& stem : stems)
      for (const char* ending : kImageEndings) candidates.push_back(stem + "." + ending);
  }
  std::error_code ignored;
  for (const std::string& candidate : candidates)
    if (fs::is_regular_file(fs::path(folder) / candidate, ignored)) return candidate;
  return name;
}

ListedImages::ListedImages(ImageList list) : list_(std::move(list)) {
  if (list_.images.empty()) user_error(list_.described, ": names no images");
  check_first();
  LineBreaks breaks;
  bool remote = false;
  for (const ListedImage& image : list_.images) {
    breaks.add(image.captions);
    remote = remote || remote::is_remote(path_of(image.name));
  }
  if (remote) read_ahead_ = kImagesPerAhead * remote::store()->ahead();
  if (breaks.are_many()) log::warning(list_.described, ": ", breaks.describe());
}

void ListedImages::check_first() const {
  if (std::ranges::all_of(list_.images, &ListedImage::is_bad)) user_error(list_.images[0].more->bad->what());
  std::vector<std::string> missing;
  for (const ListedImage& image : list_.images) {
    if (image.is_bad()) continue;
    if (sample_file_exists(path_of(image.name))) return;
    missing.push_back(path_of(image.name));
    if (missing.size() == kLookedFor) break;
  }
  user_error(list_.described, ": none of the first ", missing.size(), " images exists (the first: ", printable(missing.front()),
             "): check the folder of the images");
}

std::string ListedImages::path_of(const std::string& name) const {
  return remote::joined(list_.folder, name);
}

void ListedImages::will_read(std::int64_t index) const {
  const ListedImage& image = listed(index);
  std::vector<std::string> names = {image.name};
  if (image.more) names.insert(names.end(), {image.more->mask_file, image.more->depth_file, image.more->region_file});
  for (const std::string& name : names)
    if (const std::string path = name.empty() ? name : path_of(name); !image.is_bad() && remote::is_remote(path))
      remote::store()->read_small_ahead(path);
}

std::string ListedImages::describe() const {
  return concat(list_.described, ", ", with_thousands(size()), " samples");
}

DataFile ListedImages::data_file(std::int64_t index) const {
  const auto tables = std::ssize(list_.tables);
  const std::string& name = index < tables ? list_.tables.at(static_cast<std::size_t>(index)) : listed(index - tables).name;
  if (index >= tables && remote::is_remote(path_of(name))) return {name, ""};  // a request for each image would take too long
  return index < tables || fs::path(name).is_absolute() ? data_file_at(name) : DataFile{name, path_of(name)};
}

std::vector<std::string> ListedImages::captions(std::int64_t index) const {
  const ListedImage& image = listed(index);
  if (!image.captions.empty() || !image.more) return image.captions;
  Sample sample = image.more->known;
  set_captions_from_fields(sample);
  return std::move(sample.captions);
}

bool ListedImages::lacks_caption(std::int64_t index) const {
  const ListedImage& image = listed(index);
  return image.captions.empty() && (!image.more || ListedImages::captions(index).empty());
}

std::vector<std::uint64_t> ListedImages::image_ids() const {
  std::vector<std::uint64_t> out;
  FileIds ids;
  for (const ListedImage& image : list_.images) out.push_back(ids.of(path_of(image.name)));
  return out;
}

Sample ListedImages::get(std::int64_t index) const {
  const ListedImage& image = listed(index);
  return read_keyed(image.name, [&] { return read(image); });
}

Sample ListedImages::read(const ListedImage& image) const {
  if (image.is_bad()) throw *image.more->bad;
  Sample sample = image.more ? image.more->known : Sample();
  sample.key = image.name;
  sample.label = image.label;
  sample.captions = image.captions;
  set_captions_from_fields(sample);
  const std::string path = path_of(image.name);
  sample.encoded = read_sample_file(path, "no_image");
  if (sample.encoded.empty()) throw SampleError("empty_image", path + ": the image has 0 bytes");
  if (!image.more) return sample;
  const ListedImage::More& more = *image.more;
  return read_at("sample " + sample.key, {}, [&] {
    if (!more.region_file.empty()) set_regions(read_sample_file(path_of(more.region_file), "no_regions"), list_.region_tensor, sample);
    if (!more.mask_file.empty()) read_mask(path_of(more.mask_file), list_, sample);
    if (!more.depth_file.empty()) sample.depth = decode_depth(read_sample_file(path_of(more.depth_file), "bad_depth"), list_.depth_units);
    return std::move(sample);
  });
}

}  // namespace tessera
