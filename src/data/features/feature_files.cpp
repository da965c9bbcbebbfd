#include "src/data/features/feature_files.h"

#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr int kFormat = 1;

}  // namespace

std::string manifest_text(const FeatureManifest& manifest, const std::vector<FeatureShard>& shards) {
  nlohmann::ordered_json json{
      {"format", kFormat},           {"settings", nlohmann::ordered_json::parse(manifest.settings)},
      {"weights", manifest.weights}, {"precision", manifest.precision},
      {"data", manifest.data},       {"dtype", manifest.dtype},
      {"samples", manifest.samples}, {"left_out", manifest.left_out}};
  for (const FeatureTensor& tensor : manifest.tensors)
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  for (const FeatureShard& shard : shards)
    json["shards"].push_back({{"name", shard.name}, {"samples", shard.samples}, {"bytes", shard.bytes}});
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

FeatureManifest parse_manifest(const std::string& text, const std::string& path, std::vector<FeatureShard>& shards) {
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    if (json.at("format") != kFormat) user_error(path, ": is of a format that this version does not read");
    FeatureManifest out;
    out.settings = json.at("settings").dump();
    json.at("weights").get_to(out.weights);
    json.at("precision").get_to(out.precision);
    json.at("data").get_to(out.data);
    json.at("dtype").get_to(out.dtype);
    json.at("samples").get_to(out.samples);
    json.at("left_out").get_to(out.left_out);
    for (const auto& tensor : json.at("tensors"))
      out.tensors.push_back({tensor.at("name"), tensor.at("shape").get<std::vector<std::int64_t>>()});
    for (const auto& shard : json.at("shards"))
      shards.push_back(
          {shard.at("name"), shard.at("samples").get<std::int64_t>(), shard.at("bytes").get<std::int64_t>()});
    out.scalar_type();
    return out;
  } catch (const nlohmann::json::exception&) {
    user_error(path, ": is no manifest of features, or a damaged one; ", kFeatureWayOut);
  }
}

}  // namespace tessera
