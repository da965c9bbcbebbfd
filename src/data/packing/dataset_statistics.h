#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/data/packing/pack.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// What the statistics count of one sample; made in threads.
struct SampleFacts {
  std::string key, bad_reason, bad_text;
  std::int64_t height = 0, width = 0, bytes = 0;  // bytes: of the picture's file
  std::int64_t label = -1, objects = 0;
  std::vector<std::int64_t> characters, words, tokens;  // of each caption
  std::vector<std::string> fields;                      // "mask", "summary", ...
  std::uint64_t picture = 0;                            // stands for its bytes
  std::vector<std::uint64_t> pairs;                     // each stands for the picture with one caption
  SampleDigest digest;
  nlohmann::ordered_json dump;  // all that it holds, pictures and masks as SHA-256; if wanted
  Sample sample;                // decoded; if wanted
};

struct FactsWanted {
  std::shared_ptr<const Tokenizer> tokenizer;  // may be null
  bool dump = false;
  bool sample = false;
};

/// Reads and decodes a sample. index: what it is called as long as its key is not known. Throws what `read` throws but
/// SampleErrors.
SampleFacts facts_of(const std::function<Sample()>& read, std::int64_t index, const FactsWanted& wanted);

/// Counts what the samples of a source hold.
class DatasetStatistics {
 public:
  void add(const SampleFacts& facts);
  /// all: that these were all samples of the source; fewer have no fingerprint.
  nlohmann::ordered_json report(const Source& source, bool all) const;

 private:
  using Counts = std::map<std::int64_t, std::int64_t>;
  static nlohmann::ordered_json spread(const Counts& counts);

  std::int64_t read_ = 0;
  std::map<std::string, std::int64_t> bad_, image_sizes_, fields_;
  std::map<std::string, std::vector<std::string>> bad_examples_;
  Counts heights_, widths_, bytes_, captions_, characters_, words_, tokens_, objects_, labels_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::uint64_t> pictures_, pairs_;
  std::map<std::string, std::pair<std::int64_t, std::string>> repeated_;  // what -> how often, the first key
  SetFingerprint fingerprint_;
};

}  // namespace tessera
