#include <functional>
#include <map>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "src/data/tokenizers/sentencepiece.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include "tests/data/tokenizers/golden.h"
#include <tessera/base/random.h>

namespace tessera {
namespace {

using test::Ids;

// Returns some plain ASCII texts and every third text of the reference cases.
std::vector<std::string> mixed_texts() {
  std::vector<std::string> out = {"", "a photo of a cat", "Two DOGS playing, isn't it?",
                                  "skateboarder's half-pipe 2024"};
  const std::vector<nlohmann::json> lines = test::golden_lines("clip_bpe.jsonl");
  for (std::size_t i = 0; i < lines.size(); i += 3) out.push_back(test::text_of(lines[i]));
  return out;
}

std::string small_model() {
  int left = 400;
  return train_sentencepiece({.vocab_size = 40}, [&](std::string& line) {
    line = left % 2 == 0 ? "a small red circle left of a green star" : "two blue rings below one violet square";
    line += std::string(static_cast<std::size_t>(left % 7), 'e');
    return left-- > 0;
  });
}

using Make = std::function<std::shared_ptr<Tokenizer>(std::int64_t length)>;

std::map<std::string, Make> all_tokenizers() {
  static const std::string model = small_model();
  return {{"clip-bpe", [](std::int64_t length) { return test::clip_bpe("full", length); }},
          {"wordpiece", [](std::int64_t length) { return test::wordpiece(length); }},
          {"sentencepiece",
           [](std::int64_t length) { return make_sentencepiece({.model = {}, .context_length = length}, {model}); }}};
}

TEST(EveryTokenizer, ListsItsSpecialIds) {
  const std::map<std::string, Ids> expected = {
      {"clip-bpe", {49406, 49407}}, {"wordpiece", {0, 1, 2, 3, 4}}, {"sentencepiece", {0, 1, 2}}};
  for (const auto& [name, make] : all_tokenizers()) EXPECT_EQ(make(20)->special_ids(), expected.at(name)) << name;
}

TEST(EveryTokenizer, TruncatesToAPrefixWithTheEndToken) {
  const std::vector<std::string> texts = mixed_texts();
  for (const auto& [name, make] : all_tokenizers()) {
    const auto whole = make(1'000'000);
    for (const std::int64_t length : {1, 2, 3, 7, 20}) {
      if (length == 1 && name == "wordpiece") continue;  // wordpiece needs room for a start and an end token
      const auto cut = make(length);
      for (const std::string& text : texts) {
        Ids expected = whole->encode(text);
        EXPECT_EQ(cut->count_ids(text), std::ssize(expected)) << name << " " << length << ": " << text;
        if (expected.size() > static_cast<std::size_t>(length)) {
          const std::int64_t end = expected.back();
          expected.resize(static_cast<std::size_t>(length));
          expected.back() = end;
        }
        EXPECT_EQ(cut->encode(text), expected) << name << " " << length << ": " << text;
      }
    }
  }
}

TEST(EveryTokenizer, ReturnsTheSameBatchWithAnyNumberOfThreads) {
  std::vector<std::string> texts;
  for (int i = 0; i < 5; ++i)
    for (const std::string& text : mixed_texts()) texts.push_back(text + " " + std::to_string(i));
  const int threads = at::get_num_threads();
  for (const auto& [name, make] : all_tokenizers()) {
    const auto tokenizer = make(32);
    at::set_num_threads(1);
    const TowerInput one = tokenizer->encode_batch(texts);
    at::set_num_threads(5);
    const TowerInput five = tokenizer->encode_batch(texts);
    EXPECT_TRUE(one.ids.equal(five.ids) && one.mask.equal(five.mask)) << name;
    for (std::size_t i = 0; i < texts.size(); i += 17) {
      const Ids ids = tokenizer->encode(texts[i]);
      const at::Tensor row = one.ids[static_cast<std::int64_t>(i)];
      for (std::size_t k = 0; k < ids.size(); ++k)
        EXPECT_EQ(row[static_cast<std::int64_t>(k)].item<std::int64_t>(), ids[k]);
    }
  }
  at::set_num_threads(threads);
}

// Plain ASCII texts take a fast path. A non-ASCII character at the end sends the whole text through the general path.
TEST(EveryTokenizer, TheFastPathForAsciiEqualsTheGeneralPath) {
  const std::vector<std::string> texts = {"A Photo of\ta  cat",
                                          "isn't 'tis they'LL 'S '' !!'s",
                                          "ab12cd 3.14 a_b-c",
                                          "<start_of_text>x<END_OF_TEXT>",
                                          "[CLS] a [unk] [MASK]",
                                          "  \n x \n ",
                                          "Pneumonoultramicroscopicsilicovolcanoconiosis",
                                          std::string(3000, 'z')};
  for (const auto& [name, make] : all_tokenizers()) {
    const auto tokenizer = make(1'000'000);
    Ids tail = tokenizer->encode(" \u4E2D");
    const Ids empty = tokenizer->encode("");
    for (const std::string& text : texts) {
      Ids expected = tokenizer->encode(text);
      expected.pop_back();
      expected.insert(expected.end(), tail.begin() + static_cast<std::ptrdiff_t>(empty.size() - 1), tail.end());
      if (name != "sentencepiece") {
        EXPECT_EQ(tokenizer->encode(text + " \u4E2D"), expected) << name << ": " << text;
      }
    }
  }
}

// Merges a word's symbols as the reference does: merges the adjacent pair of the lowest rank wherever it occurs, then the lowest-ranked
// adjacent pair of the result, and so on.
std::vector<std::string> merged_naively(const std::string& word,
                                        const std::map<std::pair<std::string, std::string>, int>& ranks) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  symbols.back() += ' ';
  while (true) {
    auto best = ranks.end();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const auto found = ranks.find({symbols[i], symbols[i + 1]}); found != ranks.end())
        if (best == ranks.end() || found->second < best->second) best = found;
    if (best == ranks.end()) return symbols;
    std::vector<std::string> next;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const bool both =
          i + 1 < symbols.size() && symbols[i] == best->first.first && symbols[i + 1] == best->first.second;
      next.push_back(both ? symbols[i] + symbols[i + 1] : symbols[i]);
      if (both) ++i;
    }
    symbols = std::move(next);
  }
}

TEST(ClipBpe, WordsOfAnyLengthMergeLikeTheReference) {
  const std::string text = decompressed(load_vocabulary("clip-bpe", "merges", test::clip_merges, {}));
  std::map<std::pair<std::string, std::string>, int> ranks;
  std::istringstream lines(text);
  std::string line, left, right;
  std::getline(lines, line);
  while (ranks.size() < 48'894 && lines >> left >> right) {
    if (right.ends_with("</w>")) right.replace(right.size() - 4, 4, " ");
    ranks.emplace(std::pair(left, right), static_cast<int>(ranks.size()));
  }
  const auto tokenizer = test::clip_bpe("none", 1'000'000);
  Random random(1, Purpose::shapes);
  const std::vector<std::string> parts = {"a", "e", "s", "o", "th", "ing", "er", "aa", "z", "q", "board"};
  for (int i = 0; i < 1500; ++i) {
    std::string word;
    for (std::int64_t left_over = 1 + random.below(i % 3 == 0 ? 60 : 8); left_over > 0; --left_over)
      word += random.pick(parts);
    const Ids ids = tokenizer->encode(word);
    std::vector<std::string> symbols;
    for (std::size_t k = 1; k + 1 < ids.size(); ++k) symbols.push_back(tokenizer->decode({ids[k]}));
    symbols.back() += ' ';  // decode() strips the space at the end of a word
    EXPECT_EQ(symbols, merged_naively(word, ranks)) << word;
  }
}

}  // namespace
}  // namespace tessera
