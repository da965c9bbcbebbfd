#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

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

FeatureManifest manifest_in(const OrderedJson& json) {
  FeatureManifest out;
  require(json.at("settings").is_object(), "settings");
  out.settings = json.at("settings").dump();
  json.at("weights").get_to(out.weights);
  json.at("precision").get_to(out.precision);
  json.at("data").get_to(out.data);
  json.at("dtype").get_to(out.dtype);
  constexpr std::array<const char*, 3> kTypes = {"float32", "bfloat16", "float16"};
  require(contains(kTypes, out.dtype), "dtype");
  out.samples = count_in(json.at("samples"));
  for (const auto& [reason, count] : json.at("left_out").items()) out.left_out[reason] = count_in(count);
  for (const OrderedJson& tensor : json.at("tensors")) out.tensors.push_back(tensor_in(tensor));
  std::int64_t samples = 0;
  for (const OrderedJson& shard : json.at("shards")) {
    out.shards.push_back(shard_in(shard));
    samples += out.shards.back().samples;
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

std::uint64_t number_at(std::string_view numbers, std::int64_t row) {
  std::uint64_t out = 0;
  std::memcpy(&out, numbers.data() + row * static_cast<std::int64_t>(sizeof(out)), sizeof(out));
  return out;
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

FeatureFolder::FeatureFolder(std::string folder) : folder_(std::move(folder)) {
  const std::string path = folder_ + "/" + kFeatureManifest;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    user_error(folder_, ": holds no features, or not all of them (", kFeatureManifest,
               " is written last): write them with trainer --write-features");
  manifest_ = parse_manifest(io::read_data_file(path), path);
  for (const FeatureShard& shard : manifest_.shards) open(shard);
  std::ranges::sort(places_);
}

void FeatureFolder::open(const FeatureShard& listed) {
  OpenedShard shard;
  shard.path = folder_ + "/" + listed.name;
  shard.file = with_way_out([&] { return std::make_unique<io::MappedFile>(shard.path); });
  shard.samples = listed.samples;
  const std::string_view bytes = shard.file->bytes();
  if (static_cast<std::int64_t>(bytes.size()) != listed.bytes)
    damaged(shard.path, concat("is ", bytes.size(), " bytes long, but the manifest says ", listed.bytes));
  if (bytes.size() < sizeof(std::uint64_t)) damaged(shard.path, "it has no header");
  const std::uint64_t length = number_at(bytes, 0), rest = bytes.size() - sizeof(length);
  if (length > rest || length > io::kMaxHeaderBytes) damaged(shard.path, "its header is longer than the file");
  const std::string text(bytes.substr(sizeof(length), length));
  const io::SafetensorsHeader header = with_way_out([&] { return io::parse_safetensors_header(text, rest - length, shard.path); });
  const std::string_view data = bytes.substr(sizeof(length) + length);
  const auto tensor = [&](const std::string& name, at::ScalarType type, const std::vector<std::int64_t>& shape) {
    return tensor_bytes(header, data, name, type, shape, shard.path);
  };
  shard.images = tensor("pictures", at::kLong, {shard.samples});
  shard.checksums = tensor("checksums", at::kLong, {shard.samples});
  for (const FeatureTensor& each : manifest_.tensors) {
    std::vector<std::int64_t> shape = {shard.samples};
    shape.insert(shape.end(), each.shape.begin(), each.shape.end());
    shard.tensors.push_back(tensor(each.name, manifest_.scalar_type(), shape));
  }
  shard.keys = tensor("keys", at::kByte, {});
  shard.key_ends = tensor("key_ends", at::kLong, {shard.samples});
  std::uint64_t begin = 0;
  for (std::int64_t row = 0; row < shard.samples; ++row) {
    const std::uint64_t end = number_at(shard.key_ends, row);
    if (end < begin || end > shard.keys.size()) damaged(shard.path, "the ends of its keys are not in order");
    places_.push_back({fingerprint(shard.keys.substr(begin, end - begin)), number_at(shard.images, row),
                       static_cast<std::uint32_t>(shards_.size()), static_cast<std::uint32_t>(row)});
    begin = end;
  }
  shards_.push_back(std::move(shard));
}

const FeatureFolder::Place& FeatureFolder::find(const std::string& key, std::uint64_t image) const {
  const auto found = std::ranges::equal_range(places_, fingerprint(key), {}, &Place::key);
  if (found.empty()) throw SampleError("no_features", concat("sample ", key, ": ", folder_, " holds no features for it"));
  const auto place = std::ranges::find(found, image, &Place::image);
  if (place != found.end()) return *place;
  throw SampleError("other_picture", concat("sample ", key, ": its image is not the one for which ", folder_, " holds features"));
}

std::vector<std::uint8_t> FeatureFolder::read(const std::string& key, std::uint64_t image) const {
  const Place& place = find(key, image);
  const OpenedShard& shard = shards_[place.shard];
  std::vector<std::uint8_t> out;
  out.reserve(static_cast<std::size_t>(manifest_.bytes()));
  for (const std::string_view tensor : shard.tensors) {
    const std::size_t bytes = tensor.size() / static_cast<std::size_t>(shard.samples);
    const std::string_view row = tensor.substr(place.row * bytes, bytes);
    out.insert(out.end(), row.begin(), row.end());
  }
  const std::string_view kept(reinterpret_cast<const char*>(out.data()), out.size());
  if (fingerprint(kept) != number_at(shard.checksums, place.row))
    damaged(shard.path, concat("the features of sample ", key, " do not match their checksum"));
  return out;
}

std::string manifest_text(const FeatureManifest& manifest) {
  OrderedJson json{{"format", kFormat},           {"settings", OrderedJson::parse(manifest.settings)},
                   {"weights", manifest.weights}, {"precision", manifest.precision},
                   {"data", manifest.data},       {"dtype", manifest.dtype},
                   {"samples", manifest.samples}, {"left_out", manifest.left_out}};
  for (const FeatureTensor& tensor : manifest.tensors)
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  for (const FeatureShard& shard : manifest.shards)
    json["shards"].push_back({{"name", shard.name}, {"samples", shard.samples}, {"bytes", shard.bytes}});
  return dump_utf8(json, 1) + "\n";
}

FeatureManifest parse_manifest(const std::string& text, const std::string& path) {
  bool readable = true;
  try {
    const OrderedJson json = parse_json(text);
    readable = json.at("format") == kFormat;
    if (readable) return manifest_in(json);
  } catch (const nlohmann::json::exception&) {
  } catch (const std::invalid_argument&) {
  }
  if (!readable) user_error(path, ": has a format that this version cannot read; ", kFeatureWayOut);
  user_error(path, ": is not a manifest of features, or is damaged; ", kFeatureWayOut);
}

FeatureWriter::FeatureWriter(std::string folder, FeatureManifest manifest, std::int64_t shard_bytes)
    : folder_(std::move(folder)), manifest_(std::move(manifest)), shard_bytes_(shard_bytes) {
  remove_earlier(folder_);
}

FeatureWriter::Tensors FeatureWriter::kept_of(const std::vector<std::string>& names, const Tensors& rows) const {
  Tensors out;
  for (const auto& [name, tensor] : rows) {
    if (!tensor.defined()) continue;
    const at::Tensor kept = tensor.detach().to(at::kCPU, manifest_.scalar_type()).contiguous();
    const at::Tensor finite = kept.isfinite().flatten(1).all(1);
    if (!finite.all().item<bool>())
      user_error("sample ", names[static_cast<std::size_t>(finite.logical_not().nonzero()[0].item<std::int64_t>())],
                 ": its features from the image encoder are not finite as ", manifest_.dtype,
                 manifest_.dtype == "float16" ? ": set data.features.dtype to bfloat16 or float32" : "");
    out[name] = kept;
  }
  return out;
}

void FeatureWriter::describe(const Tensors& kept) {
  std::vector<FeatureTensor> tensors;
  for (const auto& [name, tensor] : kept) tensors.push_back({name, tensor.sizes().slice(1).vec()});
  if (manifest_.tensors.empty()) manifest_.tensors = tensors;
  TORCH_CHECK(tensors == manifest_.tensors, "FeatureWriter: the tensors differ from those of earlier calls");
}

void FeatureWriter::close_shard() {
  if (open_.images.empty()) return;
  FeatureShard shard{kFeatureShardPrefix + numbered(manifest_.shards.size()) + kFeatureShardSuffix, std::ssize(open_.images)};
  Tensors tensors = {{"keys", at::from_blob(open_.keys.data(), {std::ssize(open_.keys)}, at::kByte)},
                     {"key_ends", numbers(open_.key_ends)},
                     {"pictures", numbers(open_.images)},
                     {"checksums", numbers(open_.checksums)}};
  for (const auto& [name, parts] : open_.rows) tensors[name] = at::cat(parts);
  const std::string path = folder_ + "/" + shard.name;
  io::save_safetensors(path, tensors);
  shard.bytes = static_cast<std::int64_t>(fs::file_size(path));
  manifest_.shards.push_back(std::move(shard));
  open_ = {};
}

void FeatureWriter::add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& images, const EncodedImages& encoded) {
  add(keys, images, Tensors{{"tokens", encoded.tokens}, {"class_token", encoded.class_token}, {"attention", encoded.attention}});
}

void FeatureWriter::add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& contents, const Tensors& rows) {
  const Tensors kept = kept_of(keys, rows);
  describe(kept);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::string bytes;
    for (const auto& [name, tensor] : kept) {
      const at::Tensor one = tensor[static_cast<std::int64_t>(i)];
      bytes.append(static_cast<const char*>(one.data_ptr()), one.nbytes());
    }
    open_.keys += keys[i];
    open_.key_ends.push_back(open_.keys.size());
    open_.images.push_back(contents[i]);
    open_.checksums.push_back(fingerprint(bytes));
    ++manifest_.samples;
  }
  for (const auto& [name, tensor] : kept) open_.rows[name].push_back(tensor);
  if (manifest_.bytes() * std::ssize(open_.images) >= shard_bytes_) close_shard();
}

FeatureManifest FeatureWriter::finish(const std::map<std::string, std::int64_t>& left_out) {
  close_shard();
  manifest_.left_out = left_out;
  io::write_file(folder_ + "/" + kFeatureManifest, manifest_text(manifest_));
  return manifest_;
}

}  // namespace tessera
