#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// Maps each letter to an id, between a begin and an end id. That is enough to distinguish prompts. Its vocabulary has 32 ids.
class LetterTokenizer final : public Tokenizer {
 public:
  explicit LetterTokenizer(std::int64_t context_length = 16) : length_(context_length) {}
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids = {1};
    for (const char c : text)
      if (c >= 'a' && c <= 'z' && std::ssize(ids) + 1 < length_) ids.push_back(3 + c - 'a');
    ids.push_back(2);
    return ids;
  }
  std::int64_t count_ids(std::string_view text) const override {
    return 2 + std::ranges::count_if(text, [](char c) { return c >= 'a' && c <= 'z'; });
  }
  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::string text;
    for (const std::int64_t id : ids) {
      if (id == 28) text += ' ';  // in this vocabulary z starts a new word
      if (id >= 3) text += static_cast<char>('a' + id - 3);
    }
    return text;
  }
  std::int64_t vocab_size() const override { return 32; }
  std::int64_t context_length() const override { return length_; }
  std::int64_t pad_id() const override { return 0; }
  std::string name() const override { return "letters"; }
  const std::string& vocabulary_bytes() const override { return none_; }

 private:
  std::int64_t length_;
  std::string none_;
};

}  // namespace tessera
