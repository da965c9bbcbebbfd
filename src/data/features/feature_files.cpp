#include "src/data/features/feature_files.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "src/base/dump_utf8.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

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

}  // namespace

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

}  // namespace tessera
