#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/data/data_fingerprint.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kNames = 100'000, kSizes = 4096, kAlwaysRead = 16, kSpreadRead = 48;
constexpr std::size_t kPiece = 4096;

std::string size_text(const DataFile& file) {
  if (file.size) return std::to_string(*file.size);
  std::error_code missing;
  const auto bytes = std::filesystem::file_size(file.path, missing);
  return missing ? "missing" : std::to_string(bytes);
}

// Returns the start and the middle of a file, or a remote file's version. An unreadable file counts as empty.
std::string pieces_of(const DataFile& file) {
  if (file.size) return file.version;
  std::ifstream in(file.path, std::ios::binary);
  std::error_code missing;
  const auto bytes = std::filesystem::file_size(file.path, missing);
  if (!in || missing) return {};
  std::string out(2 * kPiece, '\0');
  in.read(out.data(), kPiece);
  auto count = static_cast<std::size_t>(in.gcount());
  in.clear();
  in.seekg(static_cast<std::streamoff>(bytes / 2));
  in.read(out.data() + count, kPiece);
  out.resize(count + static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return out;
}

// Visits up to `most` files, spread evenly over the files with index `first` or higher.
void visit_spread(const Source& source, std::int64_t first, std::int64_t most,
                  const std::function<void(const DataFile&)>& visit) {
  const std::int64_t there = source.data_file_count() - first, count = std::min(there, most);
  for (std::int64_t i = 0; i < count; ++i) visit(source.data_file(first + i * there / count));
}

class RunningDigest {
 public:
  void add(const std::string& text) { digest_ = fingerprint(text, digest_); }
  std::string text() const { return concat(std::hex, digest_); }

 private:
  std::uint64_t digest_ = 0;
};

}  // namespace

DataFingerprint compute_fingerprint(const Source& source) {
  RunningDigest names, sizes, content;
  const auto read = [&](const DataFile& file) { content.add(pieces_of(file)); };
  visit_spread(source, 0, kNames, [&](const DataFile& file) { names.add(file.name); });
  visit_spread(source, 0, kSizes, [&](const DataFile& file) { sizes.add(size_text(file)); });
  const std::int64_t always = std::min(kAlwaysRead, source.data_file_count());
  for (std::int64_t i = 0; i < always; ++i) read(source.data_file(i));
  visit_spread(source, always, kSpreadRead, read);
  return {source.size(), source.data_file_count(), names.text(), sizes.text(), content.text()};
}

DataFingerprints compute_fingerprints(const Source& source) {
  DataFingerprints out;
  for (const SourceComponent& component : source.mixing().components)
    out[component.label] = compute_fingerprint(*component.source);
  return out;
}

std::string to_json(const DataFingerprints& fingerprints) {
  auto out = nlohmann::json::object();
  for (const auto& [label, each] : fingerprints)
    out[label] = {{"samples", each.samples},
                  {"files", each.files},
                  {"names", each.names},
                  {"sizes", each.sizes},
                  {"content", each.content}};
  return out.dump();
}

DataFingerprints fingerprints_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  DataFingerprints out;
  try {
    for (const auto& [label, each] : json.items())
      out[label] = {each.at("samples"), each.at("files"), each.at("names"), each.at("sizes"), each.at("content")};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return out;
}

std::string first_difference(const DataFingerprints& there, const DataFingerprints& here) {
  for (const auto& [label, now] : here) {
    const auto found = there.find(label);
    if (found == there.end()) return concat("the source ", label, " is new");
    const DataFingerprint& before = found->second;
    const std::string of = label.empty() ? "" : concat("of ", label, " ");
    if (before.files != now.files)
      return concat(of, with_thousands(before.files), " files there, ", with_thousands(now.files), " here");
    if (before.samples != now.samples)
      return concat(of, with_thousands(before.samples), " samples there, ", with_thousands(now.samples), " here");
    if (before.names != now.names) return of + "the names of the files differ";
    if (before.sizes != now.sizes) return of + "the sizes of the files differ";
    if (before.content != now.content) return of + "the content of the files differs";
  }
  for (const auto& [label, before] : there)
    if (!here.contains(label)) return concat("the source ", label, " is gone");
  return {};
}

}  // namespace tessera
