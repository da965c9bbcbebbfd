#pragma once
// A source in memory and a byte tokenizer for the tests of the loader.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/data/images.h"
#include "tests/support/error_of.h"
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

class MemorySource : public IndexedSource {
 public:
  explicit MemorySource(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  Sample get(std::int64_t index) const override {
    return samples_.at(static_cast<std::size_t>(index));
  }
  std::string describe() const override { return "memory, " + std::to_string(size()) + " samples"; }

 private:
  std::vector<Sample> samples_;
};

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids;
    for (char c : text.substr(0, 20)) ids.push_back(static_cast<std::uint8_t>(c));
    return ids;
  }
  std::int64_t count_ids(std::string_view text) const override { return std::ssize(text); }
  std::string decode(const std::vector<std::int64_t>& ids) const override { return {ids.begin(), ids.end()}; }
  std::int64_t vocab_size() const override { return 256; }
  std::int64_t context_length() const override { return 20; }
  std::int64_t pad_id() const override { return 0; }
  std::string name() const override { return "bytes"; }
  const std::string& vocabulary_bytes() const override { return empty_; }

 private:
  std::string empty_;
};

/// Returns samples in which sample `i` has key "i", captions "first i" and "second i", label i % 3, and a PNG of noise.
inline std::vector<Sample> make_samples(std::int64_t count) {
  std::vector<Sample> out;
  for (std::int64_t i = 0; i < count; ++i) {
    Sample sample;
    sample.key = std::to_string(i);
    sample.encoded = test::encode(test::noise(20 + i % 5, 24, static_cast<std::uint64_t>(i)), ".png");
    sample.captions = {"first " + sample.key, "second " + sample.key};
    sample.label = i % 3;
    out.push_back(std::move(sample));
  }
  return out;
}

}  // namespace tessera
