#include <algorithm>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/data/formats/json_values.h"
#include "src/data/image/encode.h"
#include "src/data/image/image_file.h"
#include "src/data/packing/sample_files.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string extension_of(const std::string& encoded) {
  if (encoded.starts_with("\x89PNG")) return "png";
  if (encoded.starts_with("RIFF")) return "webp";
  if (encoded.starts_with("GIF8")) return "gif";
  if (encoded.starts_with("BM")) return "bmp";
  if (encoded.starts_with("II") || encoded.starts_with("MM")) return "tiff";
  return "jpg";
}

OrderedJson describe_objects(const std::vector<ObjectAnnotation>& objects, const std::vector<std::string>& class_names) {
  OrderedJson list = OrderedJson::array();
  for (const ObjectAnnotation& object : objects) {
    OrderedJson item;
    item["label"] = object.label;
    if (object.label >= 0 && object.label < static_cast<std::int64_t>(class_names.size()))
      item["class"] = class_names[static_cast<std::size_t>(object.label)];
    item["box"] = object.box;
    item["phrase"] = object.phrase;
    item["span"] = object.span;
    item["caption"] = object.caption;
    if (!object.negatives.empty()) item["negatives"] = object.negatives;
    list.push_back(std::move(item));
  }
  return list;
}

/// Whether the field `caption` holds nothing but captions of the sample.
bool repeats_captions(const OrderedJson& caption, const Sample& sample) {
  const auto is_known = [&](const OrderedJson& text) {
    return text.is_string() && std::ranges::find(sample.captions, strip(text.get_ref<const std::string&>())) != sample.captions.end();
  };
  return caption.is_array() ? std::ranges::all_of(caption, is_known) : is_known(caption);
}

/// Returns the fields of the sample's own side file and its text fields, with two changes. If the field `caption` holds other texts than
/// the sample's captions, it is renamed, because otherwise a reader would use them as captions. The side file's field `regions` is left
/// out, because the objects contain its boxes; if one of these boxes is invalid, the field is renamed instead.
OrderedJson kept_fields(const Sample& sample) {
  OrderedJson json = sample.fields.empty() ? OrderedJson::object() : OrderedJson::parse(sample.fields, nullptr, false);
  if (!json.is_object()) json = OrderedJson::object();
  if (const auto regions = json.find("regions"); regions != json.end() && holds_regions(nlohmann::json(*regions))) {
    if (!sample.bad_boxes.empty()) json["original_regions"] = OrderedJson(*regions);
    json.erase("regions");
  }
  for (const TextField& field : sample.texts)
    if (!json.contains(field.name)) json[field.name] = field.is_list ? OrderedJson(field.texts) : OrderedJson(field.texts.at(0));
  if (const auto caption = json.find("caption"); caption != json.end() && !repeats_captions(*caption, sample)) {
    json["original_caption"] = OrderedJson(*caption);
    json.erase("caption");
  }
  return json;
}

std::string annotations(const Sample& sample, const std::vector<std::string>& class_names) {
  OrderedJson json = kept_fields(sample);
  json["captions"] = sample.captions;
  if (!sample.summary.empty()) json["summary"] = sample.summary;
  if (!sample.object_tags.empty()) json["object_tags"] = sample.object_tags;
  if (sample.label >= 0) {
    json["label"] = sample.label;
    if (sample.label < static_cast<std::int64_t>(class_names.size()))
      json["class"] = class_names[static_cast<std::size_t>(sample.label)];
  }
  if (!sample.class_name.empty()) json["class"] = sample.class_name;
  if (!sample.objects.empty()) json["objects"] = describe_objects(sample.objects, class_names);
  if (!sample.negatives.empty()) json["negatives"] = OrderedJson::array();
  for (const HardNegative& negative : sample.negatives)
    json["negatives"].push_back({{"kind", negative.kind}, {"caption", negative.caption}});
  return dump_utf8(json);
}

}  // namespace

std::vector<SampleFile> sample_files(const Sample& sample, const std::vector<std::string>& class_names,
                                     const std::string& format, double depth_units) {
  std::vector<SampleFile> files;
  const auto add_text = [&](const char* name, const std::string& text) {
    if (!text.empty()) files.push_back({name, text});
  };
  if (!sample.encoded.empty())
    files.push_back({extension_of(sample.encoded), sample.encoded});
  else
    files.push_back({format, format == "png" ? encode_png(sample.image) : encode_jpeg(sample.image, 95)});
  if (!sample.captions.empty()) add_text("txt", sample.captions[0]);
  add_text("cls", sample.label >= 0 ? std::to_string(sample.label) : sample.class_name);
  const auto add_pixels = [&](const std::string& what, const auto& values, const auto& encode) {
    if (values.empty()) return;
    const ImageHeader header = read_image_header(sample.encoded);
    const std::int64_t height = sample.image.empty() ? header.height : sample.image.height;
    const std::int64_t width = sample.image.empty() ? header.width : sample.image.width;
    if (height * width != static_cast<std::int64_t>(values.size()))
      throw SampleError("bad_" + what, concat("sample ", sample.key, ": its ", what, " has ", values.size(),
                                              " pixels, its image ", height, " x ", width));
    files.push_back({what + ".png", encode(values, height, width)});
  };
  add_pixels("mask", sample.mask, encode_mask);
  add_pixels("depth", sample.depth, [depth_units](const std::vector<float>& depth, std::int64_t height, std::int64_t width) {
    return encode_depth(depth, height, width, depth_units);
  });
  add_text("summary.txt", sample.summary);
  add_text("objects.txt", sample.object_tags);
  if (sample.region_width > 0) {
    const std::int64_t rows = static_cast<std::int64_t>(sample.regions.size()) / sample.region_width;
    files.push_back({"regions.npy", encode_npy(sample.regions, rows, sample.region_width)});
  }
  files.push_back({"json", annotations(sample, class_names)});
  return files;
}

}  // namespace tessera
