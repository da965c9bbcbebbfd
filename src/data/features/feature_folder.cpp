#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/base/printable.h"
#include "src/data/features/feature_folder.h"
#include "src/io/mapped_file.h"
#include "src/io/safetensors_header.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

// Calls `open` and returns its result. If `open` throws UserError, adds to the message how to write the features again.
template <class Open>
auto with_way_out(const Open& open) {
  try {
    return open();
  } catch (const UserError& error) {
    user_error(error.what(), "; ", kFeatureWayOut);
  }
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  user_error(path, ": ", what, ": the shard is damaged; ", kFeatureWayOut);
}

// Returns the bytes of a tensor. Throws UserError if the shard has no tensor with this name, type and shape.
std::string_view tensor_bytes(const io::SafetensorsHeader& header, std::string_view data, const std::string& name,
                              at::ScalarType type, const std::vector<std::int64_t>& shape, const std::string& path) {
  for (const io::TensorEntry& entry : header.entries)
    if (entry.name == name && entry.dtype == type && (shape.empty() || entry.shape == shape))
      return data.substr(entry.begin, entry.end - entry.begin);
  damaged(path, concat("has no tensor ", printable(name), " as the manifest describes it"));
}

using OrderedJson = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr int kMaxDepth = 100;                         // maximum nesting depth of lists and objects; settings have the same limit
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // maximum number of samples, of bytes, and of values per image

// This function and those below throw std::invalid_argument if the manifest is malformed.
void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

OrderedJson parse_json(const std::string& text) {
  return OrderedJson::parse(text, [](int depth, OrderedJson::parse_event_t, const OrderedJson&) {
    require(depth <= kMaxDepth, "depth");
    return true;
  });
}

// Reads a number between 0 and kMost.
std::int64_t count_in(const OrderedJson& json) {
  require(json.is_number_unsigned() && json.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost), "a number");
  return json.get<std::int64_t>();
}

FeatureTensor tensor_in(const OrderedJson& json) {
  FeatureTensor out{json.at("name"), {}};
  std::int64_t values = 1;
  for (const OrderedJson& each : json.at("shape")) {
    out.shape.push_back(count_in(each));
    require(!__builtin_mul_overflow(values, std::max<std::int64_t>(out.shape.back(), 1), &values) && values <= kMost,
            "a shape");
  }
  return out;
}

// A shard's name must be one that FeatureWriter uses, without a folder, so that a manifest cannot refer to other files.
FeatureShard shard_in(const OrderedJson& json) {
  FeatureShard out{json.at("name"), count_in(json.at("samples")), count_in(json.at("bytes"))};
  const std::string_view name = out.name, prefix = kFeatureShardPrefix, suffix = kFeatureShardSuffix;
  require(name.size() > prefix.size() + suffix.size() && name.starts_with(prefix) && name.ends_with(suffix), "a name");
  const std::string_view number = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  require(number.find_first_not_of("0123456789") == std::string_view::npos, "a number in a name");
  return out;
}

FeatureManifest manifest_in(const OrderedJson& json, std::vector<FeatureShard>& shards) {
  FeatureManifest out;
  require(json.at("settings").is_object(), "settings");
  out.settings = json.at("settings").dump();
  json.at("weights").get_to(out.weights);
  json.at("precision").get_to(out.precision);
  json.at("data").get_to(out.data);
  json.at("dtype").get_to(out.dtype);
  constexpr std::array<const char*, 3> kTypes = {"float32", "bfloat16", "float16"};
  require(std::find(kTypes.begin(), kTypes.end(), out.dtype) != kTypes.end(), "dtype");
  out.samples = count_in(json.at("samples"));
  for (const auto& [reason, count] : json.at("left_out").items()) out.left_out[reason] = count_in(count);
  for (const OrderedJson& tensor : json.at("tensors")) out.tensors.push_back(tensor_in(tensor));
  std::int64_t samples = 0;
  for (const OrderedJson& shard : json.at("shards")) {
    shards.push_back(shard_in(shard));
    samples += shards.back().samples;
    require(samples <= out.samples, "samples of shards");
  }
  require(samples == out.samples, "samples of shards");
  return out;
}

namespace fs = std::filesystem;

std::string numbered(std::size_t number) {
  std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

// Removes the manifest before the other files, because files without a manifest do not count as features.
void remove_earlier(const std::string& folder) {
  std::error_code ignored;
  fs::remove(folder + "/" + kFeatureManifest, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kFeatureShardPrefix) && name.find(kFeatureShardSuffix) != std::string::npos)
      fs::remove(entry.path(), ignored);
  }
}

// Returns the values as int64, because safetensors readers do not support unsigned 64-bit numbers.
at::Tensor numbers(const std::vector<std::uint64_t>& values) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::memcpy(out.data_ptr(), values.data(), out.nbytes());
  return out;
}

}  // namespace

std::int64_t FeatureTensor::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

const FeatureTensor* FeatureManifest::find(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.name == name; });
  return found != tensors.end() ? &*found : nullptr;
}

at::ScalarType FeatureManifest::scalar_type() const {
  if (dtype == "float32") return at::kFloat;
  if (dtype == "bfloat16") return at::kBFloat16;
  if (dtype == "float16") return at::kHalf;
  user_error("features are stored as float32, bfloat16 or float16, not as ", dtype, "; ", kFeatureWayOut);
}

std::int64_t FeatureManifest::bytes() const {
  std::int64_t values = 0;
  for (const FeatureTensor& tensor : tensors) values += tensor.numel();
  return values * static_cast<std::int64_t>(c10::elementSize(scalar_type()));
}

struct FeatureFolder::Impl {
  // A shard that is mapped into memory.
  struct OpenedShard {
    std::string path;
    std::unique_ptr<io::MappedFile> file;
    std::int64_t samples = 0;
    std::string_view keys;                           // the keys' bytes, concatenated
    std::string_view key_ends, images, checksums;  // the bytes of int64 [samples] arrays
    std::vector<std::string_view> tensors;           // in the manifest's order

    std::uint64_t number(std::string_view numbers, std::int64_t row) const {
      std::uint64_t out = 0;
      std::memcpy(&out, numbers.data() + row * static_cast<std::int64_t>(sizeof(out)), sizeof(out));
      return out;
    }
  };

  // Where a sample's features are stored. The list `places` is sorted by `key`, the fingerprint of the sample's key.
  struct Place {
    std::uint64_t key = 0;
    std::uint64_t image = 0;
    std::uint32_t shard = 0;
    std::uint32_t row = 0;
  };

  std::string folder;
  FeatureManifest manifest;
  std::vector<OpenedShard> shards;
  std::vector<Place> places;

  explicit Impl(std::string given) : folder(std::move(given)) {
    const std::string path = folder + "/" + kFeatureManifest;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
      user_error(folder, ": holds no features, or not all of them (", kFeatureManifest,
                 " is written last): write them with trainer --write-features");
    std::vector<FeatureShard> listed;
    manifest = parse_manifest(io::read_data_file(path), path, listed);
    for (const FeatureShard& shard : listed) open(shard);
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return std::tie(a.key, a.image, a.shard, a.row) < std::tie(b.key, b.image, b.shard, b.row);
    });
  }

  void open(const FeatureShard& listed) {
    OpenedShard shard;
    shard.path = folder + "/" + listed.name;
    shard.file = with_way_out([&] { return std::make_unique<io::MappedFile>(shard.path); });
    shard.samples = listed.samples;
    const std::string_view bytes = shard.file->bytes();
    if (static_cast<std::int64_t>(bytes.size()) != listed.bytes)
      damaged(shard.path, concat("is ", bytes.size(), " bytes long, but the manifest says ", listed.bytes));
    std::uint64_t length = 0;
    if (bytes.size() < sizeof(length)) damaged(shard.path, "it has no header");
    std::memcpy(&length, bytes.data(), sizeof(length));
    const std::size_t rest = bytes.size() - sizeof(length);
    if (length > rest || length > io::kMaxHeaderBytes) damaged(shard.path, "its header is longer than the file");
    const std::string text(bytes.substr(sizeof(length), length));
    const io::SafetensorsHeader header =
        with_way_out([&] { return io::parse_safetensors_header(text, rest - length, shard.path); });
    const std::string_view data = bytes.substr(sizeof(length) + length);
    const auto tensor = [&](const std::string& name, at::ScalarType type, const std::vector<std::int64_t>& shape) {
      return tensor_bytes(header, data, name, type, shape, shard.path);
    };
    shard.images = tensor("pictures", at::kLong, {shard.samples});
    shard.checksums = tensor("checksums", at::kLong, {shard.samples});
    for (const FeatureTensor& each : manifest.tensors) {
      std::vector<std::int64_t> shape = {shard.samples};
      shape.insert(shape.end(), each.shape.begin(), each.shape.end());
      shard.tensors.push_back(tensor(each.name, manifest.scalar_type(), shape));
    }
    shard.keys = tensor("keys", at::kByte, {});
    shard.key_ends = tensor("key_ends", at::kLong, {shard.samples});
    add_places(shard);
    shards.push_back(std::move(shard));
  }

  void add_places(const OpenedShard& shard) {
    std::uint64_t begin = 0;
    for (std::int64_t row = 0; row < shard.samples; ++row) {
      const std::uint64_t end = shard.number(shard.key_ends, row);
      if (end < begin || end > shard.keys.size()) damaged(shard.path, "the ends of its keys are not in order");
      places.push_back({fingerprint(shard.keys.substr(begin, end - begin)), shard.number(shard.images, row),
                        static_cast<std::uint32_t>(shards.size()), static_cast<std::uint32_t>(row)});
      begin = end;
    }
  }

  const Place& find(const std::string& key, std::uint64_t image) const {
    const std::uint64_t wanted = fingerprint(key);
    const auto first = std::lower_bound(places.begin(), places.end(), wanted,
                                        [](const Place& place, std::uint64_t value) { return place.key < value; });
    if (first == places.end() || first->key != wanted)
      throw SampleError("no_features", concat("sample ", key, ": ", folder, " holds no features for it"));
    for (auto place = first; place != places.end() && place->key == wanted; ++place)
      if (place->image == image) return *place;
    throw SampleError("other_picture", concat("sample ", key, ": its image is not the one for which ", folder,
                                              " holds features"));
  }
};

FeatureFolder::FeatureFolder(const std::string& folder) : impl_(std::make_unique<Impl>(folder)) {}

FeatureFolder::~FeatureFolder() = default;

const std::string& FeatureFolder::path() const {
  return impl_->folder;
}

const FeatureManifest& FeatureFolder::manifest() const {
  return impl_->manifest;
}

std::vector<std::uint8_t> FeatureFolder::read(const std::string& key, std::uint64_t image) const {
  const Impl::Place& place = impl_->find(key, image);
  const Impl::OpenedShard& shard = impl_->shards[place.shard];
  std::vector<std::uint8_t> out;
  out.reserve(static_cast<std::size_t>(impl_->manifest.bytes()));
  for (const std::string_view tensor : shard.tensors) {
    const std::size_t bytes = tensor.size() / static_cast<std::size_t>(shard.samples);
    const std::string_view row = tensor.substr(place.row * bytes, bytes);
    out.insert(out.end(), row.begin(), row.end());
  }
  const std::string_view kept(reinterpret_cast<const char*>(out.data()), out.size());
  if (fingerprint(kept) != shard.number(shard.checksums, place.row))
    damaged(shard.path, concat("the features of sample ", key, " do not match their checksum"));
  return out;
}

std::string manifest_text(const FeatureManifest& manifest, const std::vector<FeatureShard>& shards) {
  OrderedJson json{{"format", kFormat},           {"settings", OrderedJson::parse(manifest.settings)},
                   {"weights", manifest.weights}, {"precision", manifest.precision},
                   {"data", manifest.data},       {"dtype", manifest.dtype},
                   {"samples", manifest.samples}, {"left_out", manifest.left_out}};
  for (const FeatureTensor& tensor : manifest.tensors)
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  for (const FeatureShard& shard : shards)
    json["shards"].push_back({{"name", shard.name}, {"samples", shard.samples}, {"bytes", shard.bytes}});
  return dump_utf8(json, 1) + "\n";
}

FeatureManifest parse_manifest(const std::string& text, const std::string& path, std::vector<FeatureShard>& shards) {
  bool readable = true;
  try {
    const OrderedJson json = parse_json(text);
    readable = json.at("format") == kFormat;
    if (readable) return manifest_in(json, shards);
  } catch (const nlohmann::json::exception&) {
  } catch (const std::invalid_argument&) {
  }
  if (!readable) user_error(path, ": has a format that this version cannot read; ", kFeatureWayOut);
  user_error(path, ": is not a manifest of features, or is damaged; ", kFeatureWayOut);
}

struct FeatureWriter::Impl {
  std::string folder;
  FeatureManifest manifest;
  std::int64_t shard_bytes;
  std::vector<FeatureShard> shards;

  // The contents of the shard that is being written.
  std::map<std::string, std::vector<at::Tensor>> rows;
  std::string keys;
  std::vector<std::uint64_t> key_ends, images, checksums;

  std::map<std::string, at::Tensor> kept_of(const std::vector<std::string>& names,
                                            const EncodedImages& encoded) const {
    std::map<std::string, at::Tensor> out;
    const auto keep = [&](const std::string& name, const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const at::Tensor kept = tensor.detach().to(at::kCPU, manifest.scalar_type()).contiguous();
      const at::Tensor finite = kept.isfinite().flatten(1).all(1);
      if (!finite.all().item<bool>())
        user_error("sample ", names[static_cast<std::size_t>(finite.logical_not().nonzero()[0].item<std::int64_t>())],
                   ": its features from the image encoder are not finite as ", manifest.dtype,
                   manifest.dtype == "float16" ? ": set data.features.dtype to bfloat16 or float32" : "");
      out[name] = kept;
    };
    keep("tokens", encoded.tokens);
    keep("class_token", encoded.class_token);
    keep("attention", encoded.attention);
    return out;
  }

  void describe(const std::map<std::string, at::Tensor>& kept) {
    std::vector<FeatureTensor> tensors;
    for (const auto& [name, tensor] : kept) tensors.push_back({name, tensor.sizes().slice(1).vec()});
    if (manifest.tensors.empty()) manifest.tensors = tensors;
    TORCH_CHECK(tensors == manifest.tensors, "FeatureWriter: the tensors differ from those of earlier calls");
  }

  void add(const std::string& key, std::uint64_t image, const std::map<std::string, at::Tensor>& kept,
           std::int64_t row) {
    std::string bytes;
    for (const auto& [name, tensor] : kept) {
      const at::Tensor one = tensor[row];
      bytes.append(static_cast<const char*>(one.data_ptr()), one.nbytes());
    }
    keys += key;
    key_ends.push_back(keys.size());
    images.push_back(image);
    checksums.push_back(fingerprint(bytes));
    ++manifest.samples;
  }

  void close_shard() {
    if (images.empty()) return;
    FeatureShard shard;
    shard.name = kFeatureShardPrefix + numbered(shards.size()) + kFeatureShardSuffix;
    shard.samples = static_cast<std::int64_t>(images.size());
    std::map<std::string, at::Tensor> tensors = {
        {"keys", at::from_blob(keys.data(), {static_cast<std::int64_t>(keys.size())}, at::kByte)},
        {"key_ends", numbers(key_ends)},
        {"pictures", numbers(images)},
        {"checksums", numbers(checksums)}};
    for (const auto& [name, parts] : rows) tensors[name] = at::cat(parts);
    const std::string path = folder + "/" + shard.name;
    io::save_safetensors(path, tensors);
    shard.bytes = static_cast<std::int64_t>(fs::file_size(path));
    shards.push_back(std::move(shard));
    rows.clear();
    keys.clear();
    key_ends.clear();
    images.clear();
    checksums.clear();
  }
};

FeatureWriter::FeatureWriter(const std::string& folder, FeatureManifest manifest, std::int64_t shard_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->manifest = std::move(manifest);
  impl_->shard_bytes = shard_bytes;
  remove_earlier(folder);
}

FeatureWriter::~FeatureWriter() = default;

void FeatureWriter::add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& images,
                        const EncodedImages& encoded) {
  const auto kept = impl_->kept_of(keys, encoded);
  impl_->describe(kept);
  for (std::size_t i = 0; i < keys.size(); ++i) impl_->add(keys[i], images[i], kept, static_cast<std::int64_t>(i));
  for (const auto& [name, tensor] : kept) impl_->rows[name].push_back(tensor);
  const std::int64_t bytes = impl_->manifest.bytes() * static_cast<std::int64_t>(impl_->images.size());
  if (bytes >= impl_->shard_bytes) impl_->close_shard();
}

FeatureManifest FeatureWriter::finish(const std::map<std::string, std::int64_t>& left_out) {
  impl_->close_shard();
  impl_->manifest.left_out = left_out;
  io::write_file(impl_->folder + "/" + kFeatureManifest, manifest_text(impl_->manifest, impl_->shards));
  return impl_->manifest;
}

}  // namespace tessera
