#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/image/decode.h"
#include "src/data/packing/pack.h"
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// The statistics of one sample. Worker threads compute them.
struct SampleFacts {
  std::string key, bad_reason, bad_text;
  std::int64_t height = 0, width = 0, bytes = 0;  // `bytes` is the size of the image file
  std::int64_t label = -1, objects = 0;
  std::int64_t line_breaks = 0;                         // number of captions with line breaks
  std::vector<std::int64_t> characters, words, tokens;  // for each caption, its number of characters, words and tokens
  std::vector<std::string> fields;                      // names of the fields that the sample has: "mask", "summary", ...
  std::uint64_t picture = 0;                            // fingerprint of the image's bytes
  std::uint64_t image_id = 0;                           // as in ImageIds
  std::vector<std::uint64_t> pairs;                     // for each caption, a fingerprint of the image and the caption together
  ImageNotes notes;
  SampleDigest digest;
  nlohmann::ordered_json dump;  // if requested: the sample's contents, with SHA-256 sums in place of images and masks
  Sample sample;                // if requested: the decoded sample
};

struct FactsWanted {
  std::shared_ptr<const Tokenizer> tokenizer;  // may be null
  bool dump = false;
  bool sample = false;
};

/// Reads and decodes a sample. If the sample has no key because it cannot be read, the result's key is made from `index`. Throws what
/// `read` throws, except SampleError.
SampleFacts facts_of(const std::function<Sample()>& read, std::int64_t index, const FactsWanted& wanted);

/// Collects statistics about the samples of a source.
class DatasetStatistics {
 public:
  void add(const SampleFacts& facts);
  /// Returns the statistics as JSON. `all` says whether all samples of the source were added; only then is there a fingerprint.
  nlohmann::ordered_json report(const Source& source, bool all) const;

 private:
  using Counts = std::map<std::int64_t, std::int64_t>;
  static nlohmann::ordered_json spread(const Counts& counts);

  std::int64_t read_ = 0, images_ = 0, line_breaks_ = 0;
  std::int64_t turned_ = 0;  // images with an EXIF orientation other than 1
  Counts largest_grays_;                // of 16-bit gray images, by their largest value
  std::map<std::string, std::int64_t> bad_, image_sizes_, fields_;
  std::map<std::string, std::vector<std::string>> bad_examples_;
  Counts heights_, widths_, bytes_, captions_, characters_, words_, tokens_, objects_, labels_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::uint64_t> image_ids_, pictures_, pairs_;
  // what can repeat ("keys", "pictures", ...) -> the number of repetitions, and the key of the sample with the first repetition
  std::map<std::string, std::pair<std::int64_t, std::string>> repeated_;
  SetFingerprint fingerprint_;
};

}  // namespace tessera
