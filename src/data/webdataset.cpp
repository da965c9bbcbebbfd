#include <charconv>
#include <filesystem>

#include "src/data/annotations.h"
#include "src/data/class_names.h"
#include "src/data/image_file.h"
#include "src/data/npy.h"
#include "src/data/shard_index.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/webdataset.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/tar.h>

namespace tessera {
namespace {

class WebDataset : public Source {
 public:
  explicit WebDataset(const WebDatasetSettings& settings)
      : settings_(settings), index_(index_shards(expand_paths(settings.path, ".tar"))), classes_(find_classes()) {
    report();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(index_.samples.size()); }
  std::vector<std::string> class_names() const override { return classes_; }
  std::int64_t background_class() const override { return settings_.background_class; }

  std::string describe() const override {
    const std::string shards = index_.paths.size() == 1 ? "" : concat(" and ", index_.paths.size() - 1, " more shards");
    return concat("webdataset ", index_.paths[0], shards, ", ", with_thousands(size()), " samples");
  }

  Sample get(std::int64_t index) const override {
    const ShardSample& entry = index_.samples.at(static_cast<std::size_t>(index));
    const std::string& path = index_.paths[entry.shard];
    try {
      return load(entry, io::RandomAccessFile(path));
    } catch (const SampleError& error) {
      throw SampleError(error.reason(), concat(path, ": sample ", entry.key, ": ", error.what()));
    }
  }

 private:
  std::vector<std::string> find_classes() const {
    if (settings_.classes) return read_class_names(*settings_.classes);
    const auto beside = std::filesystem::path(index_.paths[0]).parent_path() / "classes.txt";
    std::error_code ignored;
    return std::filesystem::exists(beside, ignored) ? read_class_names(beside.string()) : std::vector<std::string>();
  }

  void report() const {
    for (const std::string& problem : index_.problems) log::warning(problem);
    const std::string where = index_.paths.size() == 1
                                  ? index_.paths[0]
                                  : concat(index_.paths[0], " and ", index_.paths.size() - 1, " more shards");
    if (index_.repeated > 0)
      log::warning(where, ": ", index_.repeated,
                   " keys come more than once; each is a sample of its own (first: ", index_.repeated_example, ")");
    if (index_.scattered > 0)
      log::warning(where, ": the parts of ", index_.scattered,
                   " samples do not lie together (first: ", index_.scattered_example, ")");
    if (index_.samples.empty()) {
      std::string why;
      for (const std::string& problem : index_.problems) why = "; " + problem;
      user_error(where, ": holds no samples (files named KEY.jpg, KEY.txt, ...)", why);
    }
    std::int64_t without_image = 0;
    for (const ShardSample& sample : index_.samples)
      without_image += first_of(sample, settings_.image_keys) == nullptr ? 1 : 0;
    if (without_image == size())
      user_error(where, ": no sample has a picture: the parts found are ", join_names(part_names()),
                 ", the picture is looked for in ", join_names(settings_.image_keys), " (image_keys)");
    if (without_image > 0)
      log::warning(where, ": ", without_image, " of ", size(), " samples have no picture (",
                   join_names(settings_.image_keys), ")");
  }

  std::vector<std::string> part_names() const {
    std::vector<std::string> names;
    for (const auto& [name, count] : index_.parts)
      if (names.size() < 20) names.push_back(name);
    return names;
  }

  static const ShardPart* first_of(const ShardSample& entry, const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (const ShardPart* part = entry.find(name)) return part;
    return nullptr;
  }

  Sample load(const ShardSample& entry, const io::RandomAccessFile& file) const {
    const auto read = [&](const ShardPart& part) {
      std::string bytes = file.read(part.offset, part.size);
      if (bytes.size() < part.size) throw SampleError("truncated", "the shard has become shorter since it was indexed");
      return bytes;
    };
    const auto text = [&](const std::vector<std::string>& names) {
      const ShardPart* part = first_of(entry, names);
      return part == nullptr ? std::string() : std::string(strip(read(*part)));
    };
    Sample sample;
    sample.key = entry.key;
    const ShardPart* image = first_of(entry, settings_.image_keys);
    if (image == nullptr)
      throw SampleError("no_image", "has no picture; expected one of the parts " + join_names(settings_.image_keys));
    sample.encoded = read(*image);
    if (sample.encoded.empty()) throw SampleError("empty_image", "the image has 0 bytes");
    for (const std::string& name : settings_.caption_keys)
      if (const ShardPart* part = entry.find(name)) add_captions(read(*part), sample);
    if (const ShardPart* json = entry.find("json")) {
      const bool is_json = read_annotations(read(*json), settings_.json_captions, sample);
      if (!is_json && sample.captions.empty()) throw SampleError("bad_json", "its json part is not JSON");
    }
    sample.summary = text(settings_.summary_keys);
    sample.object_tags = text(settings_.object_keys);
    const std::string label = text(settings_.label_keys);
    if (!label.empty()) sample.label = parse_label(label);
    if (const ShardPart* part = first_of(entry, settings_.mask_keys)) sample.mask = decode_mask(read(*part)).values;
    if (const ShardPart* part = first_of(entry, settings_.region_keys)) {
      NpyMatrix regions = read_npy(read(*part));
      sample.regions = std::move(regions.values);
      sample.region_width = regions.columns;
    }
    return sample;
  }

  void add_captions(const std::string& text, Sample& sample) const {
    if (!settings_.caption_lines) {
      sample.captions.emplace_back(strip(text));
      return;
    }
    for (const std::string& line : split(text, '\n'))
      if (!strip(line).empty()) sample.captions.emplace_back(strip(line));
  }

  std::int64_t parse_label(const std::string& text) const {
    std::int64_t label = -1;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), label);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
      const auto found = std::find(classes_.begin(), classes_.end(), text);
      if (found == classes_.end())
        throw SampleError("bad_label", "its class \"" + text.substr(0, 60) +
                                           "\" is neither an index nor a name in the file of classes");
      return found - classes_.begin();
    }
    if (label < -1 || (!classes_.empty() && label >= static_cast<std::int64_t>(classes_.size())))
      throw SampleError("bad_label",
                        concat("its class index is ", label, ", but there are ", classes_.size(), " classes"));
    return label;
  }

  WebDatasetSettings settings_;
  ShardIndex index_;
  std::vector<std::string> classes_;
};

}  // namespace

std::shared_ptr<Source> make_webdataset(const WebDatasetSettings& settings) {
  return std::make_shared<WebDataset>(settings);
}

}  // namespace tessera
