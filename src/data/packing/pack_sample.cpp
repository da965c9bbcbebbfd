#include "src/data/loading/evaluation_reader.h"
#include "src/data/packing/pack_sample.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/data/formats/image_endings.h"
#include "src/data/image/encode.h"
#include "src/data/image/orientation.h"
#include "src/data/image/sample_picture.h"
#include "src/data/packing/summarize.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

// A name in a tar header has at most 100 bytes: the key, up to 18 bytes that make it unique in its shard, a dot, and up to 11 bytes of
// member name.
constexpr std::size_t kLongestKey = 70;
constexpr std::int64_t kTarBlock = 512;

std::string without_picture_extension(std::string name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot == 0) return name;
  std::string extension = name.substr(dot + 1);
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* known : kImageEndings)
    if (extension == known) return name.substr(0, dot);
  return name;
}

// Returns at most the first `count` bytes without splitting a character.
std::string first_bytes(const std::string& text, std::size_t count) {
  while (count > 0 && (static_cast<unsigned char>(text[count]) & 0xC0U) == 0x80U) --count;
  return text.substr(0, count);
}

// Changes the captions to what a reader will return: strips white space, and drops captions that are blank or not UTF-8. Updates the
// objects' references to captions.
void clean_captions(Sample& sample) {
  std::vector<std::string> out;
  std::vector<std::int64_t> place;  // new index of each caption; -1: dropped
  bool undecodable = false;
  for (const std::string& caption : sample.captions) {
    const std::string text(strip(caption));
    undecodable = undecodable || !is_utf8(text);
    const bool stays = !text.empty() && is_utf8(text);
    place.push_back(stays ? std::ssize(out) : -1);
    if (stays) out.push_back(text);
  }
  if (out.empty() && undecodable) throw SampleError("not_utf8", "sample " + sample.key + ": its caption is not UTF-8");
  if (out.empty() && !sample.captions.empty())
    throw SampleError("no_caption", "sample " + sample.key + ": its captions are blank");
  for (ObjectAnnotation& object : sample.objects) {
    const bool there = object.caption >= 0 && object.caption < std::ssize(place);
    const std::int64_t now = there ? place[static_cast<std::size_t>(object.caption)] : -1;
    if (now < 0) object.span = {};
    object.caption = std::max<std::int64_t>(now, 0);
  }
  sample.captions = std::move(out);
}

// Resizes an array with one value per pixel by nearest neighbor sampling, because the values must not be mixed.
template <class T>
std::vector<T> resized(const std::vector<T>& values, const Image& from, const Image& to) {
  if (values.size() != static_cast<std::size_t>(from.height * from.width)) return values;
  std::vector<T> out;
  out.reserve(static_cast<std::size_t>(to.height * to.width));
  const auto source = [](std::int64_t place, std::int64_t old_side, std::int64_t new_side) {
    return std::min((2 * place + 1) * old_side / (2 * new_side), old_side - 1);  // old pixel in which new pixel `place` has its center
  };
  for (std::int64_t y = 0; y < to.height; ++y)
    for (std::int64_t x = 0; x < to.width; ++x)
      out.push_back(values[static_cast<std::size_t>(source(y, from.height, to.height) * from.width +
                                                    source(x, from.width, to.width))]);
  return out;
}

// If `width` and `height` in the side file's fields are the size of `from`, changes them to the size of `to`.
void update_size(std::string& fields, const Image& from, const Image& to) {
  nlohmann::json json = nlohmann::json::parse(fields, nullptr, false);
  if (!json.is_object()) return;
  const auto is = [&](const char* name, std::int64_t side) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number() && found->get<double>() == static_cast<double>(side);
  };
  if (!is("width", from.width) || !is("height", from.height)) return;
  json["width"] = to.width;
  json["height"] = to.height;
  fields = dump_utf8(json);
}

// Scales a box along one side of the image. A box that begins inside the image still does, and one that is not empty keeps a pixel.
void scale_extent(std::int64_t& begin, std::int64_t& length, double scale, std::int64_t old_side, std::int64_t new_side) {
  const std::int64_t last = begin < old_side ? new_side - 1 : std::numeric_limits<std::int64_t>::max();
  begin = std::min<std::int64_t>(std::llround(scale * static_cast<double>(begin)), last);
  if (length > 0) length = std::max<std::int64_t>(std::llround(scale * static_cast<double>(length)), 1);
}

// Shrinks the image, and everything that is measured in its pixels, so that the shorter side has `shorter` pixels.
void shrink(Sample& sample, std::int64_t shorter) {
  const Image& old = sample.image;
  const double scale = static_cast<double>(shorter) / static_cast<double>(std::min(old.height, old.width));
  const auto scaled = [&](std::int64_t side) {
    return std::max<std::int64_t>(1, std::llround(scale * static_cast<double>(side)));
  };
  Image image = resize(old, scaled(old.height), scaled(old.width), "bicubic");
  sample.mask = resized(sample.mask, old, image);
  sample.depth = resized(sample.depth, old, image);
  for (ObjectAnnotation& object : sample.objects) {
    scale_extent(object.box[0], object.box[2], scale, old.height, image.height);
    scale_extent(object.box[1], object.box[3], scale, old.width, image.width);
  }
  update_size(sample.fields, old, image);
  sample.image = std::move(image);
}

void prepare_picture(Sample& sample, const PackSettings& settings) {
  std::string file = sample.encoded;
  ImageNotes notes;
  sample.image =
      take_image(sample, {.gray_range = settings.gray_range}, &notes);  // throws if the image cannot be decoded
  const bool too_large = settings.resize > 0 && std::min(sample.image.height, sample.image.width) > settings.resize;
  if (too_large) shrink(sample, settings.resize);
  // A resized image keeps its orientation, as its mask and boxes do.
  if (too_large || file.empty())
    file = with_orientation(settings.format == "png" ? encode_png(sample.image)
                                                     : encode_jpeg(sample.image, static_cast<int>(settings.quality)),
                            notes.orientation);
  sample.encoded = std::move(file);
  sample.image = {};
}

void clean_texts(Sample& sample) {
  clean_captions(sample);
  sample.summary = strip(repair_utf8(sample.summary));
  sample.object_tags = strip(repair_utf8(sample.object_tags));
  for (ObjectAnnotation& object : sample.objects) {
    object.phrase = repair_utf8(object.phrase);
    for (std::string& negative : object.negatives) negative = repair_utf8(negative);
  }
  for (HardNegative& negative : sample.negatives) {
    negative.kind = repair_utf8(negative.kind);
    negative.caption = repair_utf8(negative.caption);
  }
}

}  // namespace

std::int64_t PackedSample::bytes() const {
  std::int64_t total = 0;
  for (const SampleFile& file : files)
    total += kTarBlock + (static_cast<std::int64_t>(file.content.size()) + kTarBlock - 1) / kTarBlock * kTarBlock;
  return total;
}

std::string shard_key(const std::string& key) {
  std::string text = repair_utf8(key);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || c == '\\') c = '_';
  std::string out;
  const std::vector<std::string> folders = split(text, '/');
  for (std::size_t i = 0; i < folders.size(); ++i) {
    std::string name = folders[i];
    if (i + 1 == folders.size()) {
      name = without_picture_extension(name);
      std::replace(name.begin(), name.end(), '.', '_');
      if (name.empty()) name = "_";
    } else if (name.empty()) {
      continue;
    } else if (name == "." || name == "..") {
      name = "_";
    }
    out += out.empty() ? name : "/" + name;
  }
  if (out.size() <= kLongestKey) return out;
  return first_bytes(out, kLongestKey - 17) + "-" + hexadecimal(fingerprint(key));
}

void pack_sample(Sample& sample, const PackSettings& settings, const std::vector<std::string>& class_names, double depth_units,
                 PackedSample& out) {
  clean_texts(sample);
  if (settings.summarize && sample.summary.empty()) sample.summary = summarize(sample.captions);
  prepare_picture(sample, settings);
  sample.key = shard_key(sample.key);
  out.files = sample_files(sample, class_names, settings.format, depth_units);
  out.digest = digest_of(sample);
  out.key = sample.key;
}

}  // namespace tessera
