#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "src/data/formats/annotations.h"
#include "src/data/image/image_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/encode.h>
#include <tessera/data/packing/shard_writer.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/tar_writer.h>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string extension_of(const std::string& encoded) {
  if (encoded.starts_with("\x89PNG")) return "png";
  if (encoded.starts_with("RIFF")) return "webp";
  if (encoded.starts_with("GIF8")) return "gif";
  if (encoded.starts_with("BM")) return "bmp";
  if (encoded.starts_with("II") || encoded.starts_with("MM")) return "tiff";
  return "jpg";
}

Json describe_objects(const std::vector<ObjectAnnotation>& objects, const std::vector<std::string>& class_names) {
  Json list = Json::array();
  for (const ObjectAnnotation& object : objects) {
    Json item;
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

/// Returns the fields of the sample's own side file. Its `caption` keeps that name only if it is one of the captions, because a
/// reader would take it for one. Its `regions` are already among the objects, except those with invalid boxes.
Json kept_fields(const Sample& sample) {
  Json json = sample.fields.empty() ? Json::object() : Json::parse(sample.fields, nullptr, false);
  if (!json.is_object()) return Json::object();
  if (const auto regions = json.find("regions"); regions != json.end() && holds_regions(nlohmann::json(*regions))) {
    if (!sample.bad_boxes.empty()) json["original_regions"] = Json(*regions);
    json.erase("regions");
  }
  const auto caption = json.find("caption");
  if (caption == json.end()) return json;
  const std::string text = caption->is_string() ? std::string(strip(caption->get<std::string>())) : "";
  if (std::find(sample.captions.begin(), sample.captions.end(), text) == sample.captions.end()) {
    json["original_caption"] = Json(*caption);
    json.erase("caption");
  }
  return json;
}

std::string annotations(const Sample& sample, const std::vector<std::string>& class_names) {
  Json json = kept_fields(sample);
  json["captions"] = sample.captions;
  for (const TextField& field : sample.texts)
    if (!json.contains(field.name)) json[field.name] = field.is_list ? Json(field.texts) : Json(field.texts.at(0));
  if (!sample.summary.empty()) json["summary"] = sample.summary;
  if (!sample.object_tags.empty()) json["object_tags"] = sample.object_tags;
  if (sample.label >= 0) {
    json["label"] = sample.label;
    if (sample.label < static_cast<std::int64_t>(class_names.size()))
      json["class"] = class_names[static_cast<std::size_t>(sample.label)];
  }
  if (!sample.class_name.empty()) json["class"] = sample.class_name;
  if (!sample.objects.empty()) json["objects"] = describe_objects(sample.objects, class_names);
  if (!sample.negatives.empty()) json["negatives"] = Json::array();
  for (const HardNegative& negative : sample.negatives)
    json["negatives"].push_back({{"kind", negative.kind}, {"caption", negative.caption}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shard_path(const ShardSettings& settings, std::int64_t shard) {
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "-%05lld.tar", static_cast<long long>(shard));
  return (std::filesystem::path(settings.folder) / (settings.name + number.data())).string();
}

void prepare_folder(const ShardSettings& settings) {
  std::error_code error;
  std::filesystem::create_directories(settings.folder, error);
  if (error) user_error(settings.folder, ": cannot make this folder: ", error.message());
  for (const auto& entry : std::filesystem::directory_iterator(settings.folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(settings.name + "-") && file.ends_with(".tar"))
      user_error(entry.path().string(), ": exists already; name another folder, or remove the shards of ",
                 settings.name);
  }
  if (error) user_error(settings.folder, ": cannot read this folder: ", error.message());
}

void write_classes(const std::string& folder, const std::vector<std::string>& class_names) {
  if (class_names.empty()) return;
  std::string text;
  for (const std::string& name : class_names) text += name + "\n";
  io::write_file((std::filesystem::path(folder) / "classes.txt").string(), text);
}

}  // namespace

std::vector<SampleFile> sample_files(const Sample& sample, const std::vector<std::string>& class_names,
                                     const std::string& format) {
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
  add_pixels("depth", sample.depth, encode_depth);
  add_text("summary.txt", sample.summary);
  add_text("objects.txt", sample.object_tags);
  if (sample.region_width > 0) {
    const std::int64_t rows = static_cast<std::int64_t>(sample.regions.size()) / sample.region_width;
    files.push_back({"regions.npy", encode_npy(sample.regions, rows, sample.region_width)});
  }
  files.push_back({"json", annotations(sample, class_names)});
  return files;
}

std::vector<std::string> write_shards(const IndexedSource& source, const ShardSettings& settings,
                                      const std::function<void(std::int64_t)>& progress) {
  if (settings.format != "png" && settings.format != "jpg")
    user_error("format: expected png or jpg, got ", settings.format);
  prepare_folder(settings);
  const std::vector<std::string> class_names = source.class_names();
  const std::int64_t shards = (source.size() + settings.samples_per_shard - 1) / settings.samples_per_shard;
  std::atomic<std::int64_t> next_shard = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;  // guards done, failure and progress
  std::int64_t done = 0;
  std::exception_ptr failure;

  const auto write_one = [&](std::int64_t shard) {
    io::TarWriter tar(shard_path(settings, shard));
    const std::int64_t end = std::min(source.size(), (shard + 1) * settings.samples_per_shard);
    for (std::int64_t i = shard * settings.samples_per_shard; i < end && !failed; ++i) {
      const Sample sample = source.get(i);
      for (const SampleFile& file : sample_files(sample, class_names, settings.format))
        tar.add(sample.key + "." + file.name, file.content);
      const std::lock_guard lock(mutex);
      ++done;
      if (progress) progress(done);
    }
    if (!failed) tar.finish();
  };
  const auto work = [&] {
    try {
      while (!failed) {
        const std::int64_t shard = next_shard++;
        if (shard >= shards) return;
        write_one(shard);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < std::min(settings.threads, shards); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);

  write_classes(settings.folder, class_names);
  std::vector<std::string> paths;
  for (std::int64_t shard = 0; shard < shards; ++shard) paths.push_back(shard_path(settings, shard));
  return paths;
}

}  // namespace tessera
