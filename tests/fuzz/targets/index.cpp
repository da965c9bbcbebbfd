// Reads indexes and files of sparse vectors. An index consists of a manifest and a segment; the input is the segment. The checksums of the
// segment and of the manifest are corrected first, because the parser rejects files with wrong checksums.
#include <cmath>
#include <cstring>

#include "src/base/digest.h"
#include "src/index/index.h"
#include "src/index/manifest.h"
#include "src/index/segment.h"
#include "src/index/sparse_files.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {
namespace {

using namespace tessera::index;

/// Corrects every checksum of a segment and returns the segment's trailer. Sizes and counts stay as in the input.
SegmentTrailer repair(std::string& bytes) {
  SegmentTrailer trailer{};
  if (bytes.size() < 8 + sizeof(trailer)) return trailer;
  const std::size_t place = bytes.size() - sizeof(trailer);
  std::memcpy(&trailer, bytes.data() + place, sizeof(trailer));
  trailer.magic = kSegmentMagic;
  trailer.version = kSegmentVersion;
  trailer.file_bytes = bytes.size();
  trailer.impact_bits = trailer.impact_bits % 2 == 0 ? 8 : 16;
  std::memcpy(bytes.data(), kSegmentMagic.data(), 8);
  std::vector<SectionEntry> table;
  if (trailer.sections >= 1 && trailer.sections <= (place - 8) / sizeof(SectionEntry)) {
    table.resize(trailer.sections);
    char* const stored = bytes.data() + place - table.size() * sizeof(SectionEntry);
    std::memcpy(table.data(), stored, table.size() * sizeof(SectionEntry));
    for (SectionEntry& section : table)
      if (section.offset <= place && section.bytes <= place - section.offset)
        section.fingerprint = fingerprint(std::string_view(bytes).substr(section.offset, section.bytes));
    std::memcpy(stored, table.data(), table.size() * sizeof(SectionEntry));
  }
  trailer.fingerprint = segment_fingerprint(table, trailer);
  std::memcpy(bytes.data() + place, &trailer, sizeof(trailer));
  return trailer;
}

/// Checks the hits of a search against scores that are computed from the stored impacts.
void check_search(const Index& opened) {
  const SparseVectors stored = opened.stored_vectors();
  QuantizedQuery query;
  for (std::int32_t token = 0; token < std::min<std::int64_t>(opened.vocab_size(), 20); ++token) {
    query.tokens.push_back(token);
    query.weights.push_back(static_cast<std::uint32_t>(1 + token % 3));
  }
  query.unit = 1;
  std::int64_t matching = 0;
  std::uint64_t best = 0;
  for (std::int64_t row = 0; row < stored.rows(); ++row) {
    std::uint64_t product = 0;
    for (std::size_t i = 0; i < stored.tokens_of(row).size(); ++i) {
      const std::int32_t token = stored.tokens_of(row)[i];
      if (token < static_cast<std::int32_t>(query.tokens.size()))
        product += query.weights[token] * static_cast<std::uint64_t>(std::lround(stored.weights_of(row)[i]));
    }
    matching += product > 0 ? 1 : 0;
    best = std::max(best, product);
  }
  const Hits all = opened.search(query, 100'000), three = opened.search(query, 3);
  require(static_cast<std::int64_t>(all.best.size()) == matching, "index: wrong number of hits");
  require(all.best.empty() || all.best.front().product == best, "index: wrong best product");
  for (std::size_t i = 0; i < three.best.size(); ++i)
    require(three.best[i].document == all.best[i].document, "index: the first hits differ with k");
}

}  // namespace

void fuzz_index(std::string_view input) {
  static const InputFolder folder;
  static InputFile file;
  std::string bytes(input);
  const SegmentTrailer trailer = repair(bytes);
  io::write_file(folder.path() + "/segment-000001", bytes);
  Manifest manifest;
  manifest.layout = {static_cast<std::int64_t>(trailer.vocab_size % 100'000),
                     static_cast<std::int64_t>(trailer.window % (kLargestWindow + 64)),
                     static_cast<int>(trailer.impact_bits)};
  // With this quantization, an impact of 1 stands for a weight of 1, so that stored weights are whole numbers.
  manifest.quantization = {manifest.layout.impact_bits, manifest.layout.impact_bits == 16 ? 65'535.0 : 255.0, false};
  manifest.segments.push_back({{"segment-000001", static_cast<std::int64_t>(trailer.documents % 1'000'000),
                                static_cast<std::int64_t>(bytes.size()), trailer.fingerprint},
                               {}});
  allowing<UserError>([&] {
    write_manifest(folder.path(), manifest);
    check_search(Index(folder.path(), 1));
  });
  allowing<UserError>([&] {
    tessera::index::parse_manifest(std::string(input), "manifest.json");
  });
  file.write(input);
  for (const char* format : {"csr", "jsonl", "ciff"}) {
    allowing<UserError>([&] {
      const SparseVectors vectors = read_sparse_file(file.path(), {.format = format});
      require(static_cast<std::int64_t>(vectors.ids.size()) == vectors.rows(), "sparse file: ids and rows differ in number");
      require(vectors.count() <= static_cast<std::int64_t>(input.size()), "sparse file: more weights than bytes");
    });
  }
}

}  // namespace tessera::fuzz
