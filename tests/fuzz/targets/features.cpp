// Reads feature folders. The input is a manifest and, after a line "%%", the shard that the manifest lists. The manifest is first adjusted
// to the shard's length, or replaced if it is unreadable, because the parser would reject any folder with a wrong manifest.
#include "src/data/features/feature_folder.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {
namespace {

constexpr const char* kShard = "features-00000.safetensors";

// Returns a manifest that fits the shards of the corpus, which hold the samples k0 to k2 with the image fingerprints 100 to 102.
FeatureManifest usual_manifest() {
  FeatureManifest out;
  out.settings = "{}";
  out.dtype = "float32";
  out.samples = 3;
  out.tensors = {{"class_token", {2}}, {"tokens", {2, 2}}};
  return out;
}

FeatureManifest make_manifest(const std::string& text) {
  try {
    return parse_manifest(text, "features.json");
  } catch (const UserError& error) {
    check_message(error);
    return usual_manifest();
  }
}

}  // namespace

void fuzz_features(std::string_view input) {
  static const InputFolder folder;
  const std::size_t mark = input.find("\n%%\n");
  const std::string_view shard = mark == std::string_view::npos ? input : input.substr(mark + 4);
  FeatureManifest manifest = make_manifest(std::string(input.substr(0, mark)));
  io::write_file(folder.path() + "/" + kShard, shard);
  manifest.shards = {{kShard, manifest.samples, static_cast<std::int64_t>(shard.size())}};
  io::write_file(folder.path() + "/" + kFeatureManifest, manifest_text(manifest));
  allowing<UserError>([&] {
    const FeatureFolder features(folder.path());
    for (std::uint64_t i = 0; i < 4; ++i) {
      try {
        const auto read = features.read("k" + std::to_string(i), 100 + i);
        require(static_cast<std::int64_t>(read.size()) == manifest.bytes(), "features: wrong number of bytes");
      } catch (const SampleError& error) {
        check_message(error);
      } catch (const UserError& error) {
        check_message(error);
      }
    }
  });
}

}  // namespace tessera::fuzz
