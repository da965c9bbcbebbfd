#include "src/index/manifest.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tessera-index";
constexpr int kVersion = 1;

std::string path_in(const std::string& folder) {
  return folder + "/manifest.json";
}

std::uint64_t from_hexadecimal(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument("not a fingerprint");
  return value;
}

std::string removed_text(const std::vector<std::uint64_t>& removed) {
  return base64_encode({reinterpret_cast<const char*>(removed.data()), 8 * removed.size()});
}

std::vector<std::uint64_t> removed_bits(const std::string& text, std::int64_t documents) {
  const std::string bytes = base64_decode(text);
  std::vector<std::uint64_t> bits(bytes.size() / 8);
  std::copy_n(bytes.data(), 8 * bits.size(), reinterpret_cast<char*>(bits.data()));
  const auto words = static_cast<std::size_t>((documents + 63) / 64);
  const bool sound = bytes.size() == 8 * words && (documents % 64 == 0 || bits.back() >> (documents % 64) == 0);
  if (!bits.empty() && !sound) throw std::invalid_argument("removed documents");
  return bits;
}

/// Reads a number, which must be between 0 and `most`.
std::int64_t count_of(const Json& json, const char* name, std::int64_t most) {
  const Json& value = json.at(name);
  const auto number = value.get<std::int64_t>();
  if (!value.is_number_integer() || number < 0 || number > most) throw std::invalid_argument(name);
  return number;
}

/// Reads the name of a file in the index's folder.
std::string file_of(const Json& value) {
  auto name = value.get<std::string>();
  if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
    throw std::invalid_argument("a file's name");
  return name;
}

Manifest from_json(const Json& json) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  Manifest out;
  out.layout.vocab_size = count_of(json, "vocab_size", INT32_MAX);
  out.layout.window = count_of(json, "window", kLargestWindow);
  out.layout.impact_bits = static_cast<int>(count_of(json, "impact_bits", 16));
  out.quantization = {out.layout.impact_bits, json.at("largest_weight").get<double>(),
                      json.at("unit_length").get<bool>()};
  if (out.layout.window < 64 || out.layout.window % 64 != 0 || out.layout.impact_bits % 8 != 0 ||
      out.layout.impact_bits == 0 || !(out.quantization.largest_weight > 0) ||
      !std::isfinite(out.quantization.largest_weight))
    throw std::invalid_argument("sizes");
  out.next_number = count_of(json, "next_number", kMost);
  out.vocabulary = file_of(json.at("vocabulary"));
  out.vocabulary_fingerprint = from_hexadecimal(json.at("vocabulary_fingerprint").get<std::string>());
  for (const Json& each : json.at("segments")) {
    ManifestSegment segment;
    segment.record = {file_of(each.at("file")), count_of(each, "documents", kMost),
                      count_of(each, "bytes", kMost * 1024),
                      from_hexadecimal(each.at("fingerprint").get<std::string>())};
    segment.removed = removed_bits(each.at("removed").get<std::string>(), segment.record.documents);
    out.segments.push_back(std::move(segment));
  }
  return out;
}

}  // namespace

bool ManifestSegment::remove(std::int64_t document) {
  if (is_removed(document)) return false;
  if (removed.empty()) removed.resize(static_cast<std::size_t>((record.documents + 63) / 64), 0);
  removed[document / 64] |= std::uint64_t{1} << (document % 64);
  return true;
}

std::int64_t ManifestSegment::removed_count() const {
  std::int64_t count = 0;
  for (const std::uint64_t word : removed) count += __builtin_popcountll(word);
  return count;
}

bool has_manifest(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(path_in(folder), ignored);
}

std::string manifest_text(const Manifest& manifest) {
  Json segments = Json::array();
  for (const ManifestSegment& segment : manifest.segments)
    segments.push_back({{"file", segment.record.file},
                        {"documents", segment.record.documents},
                        {"bytes", segment.record.bytes},
                        {"fingerprint", hexadecimal(segment.record.fingerprint)},
                        {"removed", removed_text(segment.removed)}});
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"vocab_size", manifest.layout.vocab_size},
                     {"window", manifest.layout.window},
                     {"impact_bits", manifest.layout.impact_bits},
                     {"largest_weight", manifest.quantization.largest_weight},
                     {"unit_length", manifest.quantization.unit_length},
                     {"next_number", manifest.next_number},
                     {"vocabulary", manifest.vocabulary},
                     {"vocabulary_fingerprint", hexadecimal(manifest.vocabulary_fingerprint)},
                     {"segments", segments}};
  const std::string line = json.dump() + "\n";
  return line + hexadecimal(fingerprint(line)) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const std::size_t end = text.find('\n') + 1;  // 0 if there is no line end
  if (end == 0 || text.substr(end) != hexadecimal(fingerprint(std::string_view(text).substr(0, end))) + "\n")
    user_error(path, ": damaged, or not the manifest of an index: its last line is not the fingerprint of the first");
  const Json json = Json::parse(std::string_view(text).substr(0, end), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat)
    user_error(path, ": not the manifest of an index");
  if (!json.contains("version") || json["version"] != kVersion)
    user_error(path, ": its version is not ", kVersion, ", which this program reads");
  try {
    return from_json(json);
  } catch (const nlohmann::json::exception&) {
  } catch (const std::invalid_argument&) {
  } catch (const UserError&) {
  }
  user_error(path, ": not the manifest of an index: a value is missing or out of range");
}

void require_manifest(const std::string& folder) {
  if (!has_manifest(folder))
    user_error(folder, ": there is no index (no manifest.json); tessera-index build makes one");
}

Manifest read_manifest(const std::string& folder) {
  require_manifest(folder);
  return parse_manifest(io::read_file(path_in(folder)), path_in(folder));
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  io::write_file(path_in(folder), manifest_text(manifest));
}

}  // namespace tessera::index
