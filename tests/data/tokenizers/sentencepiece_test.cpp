#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/tokenizers/sentencepiece.h"
#include "src/data/tokenizers/sentencepiece_model.h"
#include "tests/data/tokenizers/golden.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using test::Ids;

std::vector<std::string> sentences() {
  const std::vector<std::string> sizes = {"small", "large", "tiny"},
                                 colours = {"red", "blue", "green", "yellow", "violet"};
  const std::vector<std::string> shapes = {"circle", "square", "triangle", "star", "ring"};
  const std::vector<std::string> relations = {"left of", "right of", "above", "below"};
  std::vector<std::string> out;
  for (std::size_t i = 0; i < 300; ++i)
    out.push_back("a " + sizes[i % 3] + " " + colours[i % 5] + " " + shapes[i / 2 % 5] + " " + relations[i / 5 % 4] +
                  " a " + colours[(i / 7 + 1) % 5] + " " + shapes[i / 11 % 5]);
  return out;
}

std::string train(std::int64_t vocab_size, const std::vector<std::string>& corpus = sentences()) {
  std::size_t i = 0;
  return train_sentencepiece({.vocab_size = vocab_size}, [&](std::string& line) {
    if (i == corpus.size()) return false;
    line = corpus[i++];
    return true;
  });
}

const std::string& model() {
  static const std::string bytes = train(40);
  return bytes;
}

std::shared_ptr<Tokenizer> tokenizer(const SentencePieceSettings& settings = {}) {
  return make_sentencepiece(settings, {model()});
}

TEST(SentencePiece, TrainingIsDeterministic) {
  EXPECT_EQ(train(40), model());
}

TEST(SentencePiece, DecodeReturnsTheText) {
  const auto t = tokenizer();
  const std::string text = "a small red circle left of a green star";
  EXPECT_EQ(t->decode(t->encode(text)), text);
  EXPECT_EQ(t->vocab_size(), 40);
  EXPECT_EQ(t->context_length(), 55);
  EXPECT_EQ(error_of([&] { t->decode({40}); }), "sentencepiece: id 40 is not in 0..39");
}

TEST(SentencePiece, BeginAndEndTokensFollowTheSettings) {
  const std::string text = "a red star";
  const Ids bare = tokenizer({.add_eos = false})->encode(text);
  Ids expected = bare;
  expected.push_back(2);
  EXPECT_EQ(tokenizer()->encode(text), expected);
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(tokenizer({.add_bos = true})->encode(text), expected);
  EXPECT_EQ(tokenizer()->encode(""), (Ids{2}));
}

// Id 0 is the unknown piece. The mask must not treat it as padding.
TEST(SentencePiece, MaskDependsOnLengthNotOnIds) {
  const auto t = tokenizer({.context_length = 8});
  const TowerInput batch = t->encode_batch({"\u4E2D", "a"});
  const Ids ids = t->encode("\u4E2D");
  ASSERT_NE(std::find(ids.begin(), ids.end(), 0), ids.end());
  EXPECT_EQ(batch.mask[0].sum().item<std::int64_t>(), static_cast<std::int64_t>(ids.size()));
  EXPECT_EQ(batch.ids[1][7].item<std::int64_t>(), 0);
}

// The SentencePiece library joins unknown characters in quadratic time, so encoding all of `unknown` would take hours.
TEST(SentencePiece, LongTextsAreReadOnlyAsFarAsIdsAreKept) {
  std::string unknown, words;
  for (int i = 0; i < 3'000'000; ++i) unknown += "\u6F22";
  for (int i = 0; i < 300'000; ++i) words += "a red star ";
  const auto t = tokenizer();
  EXPECT_EQ(t->encode(unknown), t->encode("\u6F22\u6F22"));
  EXPECT_EQ(t->encode(words), t->encode(words.substr(0, 1100)));
  EXPECT_EQ(std::ssize(t->encode(words)), 55);
  const Ids many = tokenizer({.context_length = 30'000})->encode(words);
  EXPECT_EQ(std::ssize(many), 30'000) << "a longer limit must still be filled";
}

TEST(SentencePiece, InvalidUtf8IsReplaced) {
  EXPECT_EQ(tokenizer()->encode("a \xFF"), tokenizer()->encode("a \uFFFD"));
}

TEST(SentencePiece, AnInvalidModelIsReported) {
  const std::string path = testing::TempDir() + "broken.model";
  for (const std::string& content : {std::string("not a model"), std::string()}) {
    io::write_file(path, content);
    EXPECT_EQ(error_of([&] { make_sentencepiece({.model = path}, {}); }),
              "sentencepiece: model: " + path + ": is not a SentencePiece model, or damaged (" +
                  std::to_string(content.size()) + " bytes)");
  }
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([] { make_sentencepiece({.model = "/none.model"}, {}); }),
            "sentencepiece: model: /none.model: cannot read: No such file or directory");
  EXPECT_EQ(error_of([] { tokenizer({.pad_id = 40}); }),
            "sentencepiece: vocabulary of the checkpoint: pad_id is 40, but the model has 40 pieces");
}

// The library uses the offsets in these tables without checking them.
TEST(SentencePiece, DamagedNormalizationTablesAreRefused) {
  ASSERT_GT(model().size(), 200'000U) << "the tables of NFKC take most of the model";
  ASSERT_TRUE(has_sound_normalization(model()));
  for (std::size_t begin = 20'000; begin < 150'000; begin += 26'000) {
    std::string damaged = model();
    std::for_each_n(damaged.begin() + static_cast<std::ptrdiff_t>(begin), 64, [](char& byte) { byte ^= 0x7F; });
    EXPECT_FALSE(has_sound_normalization(damaged)) << begin;
    const std::string message = error_of([&] { make_sentencepiece({}, {damaged}); });
    EXPECT_NE(message.find("is not a SentencePiece model, or damaged"), std::string::npos) << message;
  }
}

TEST(SentencePiece, TrainingErrorsSuggestAVocabularySize) {
  const std::string large = error_of([] { train(5000); });
  EXPECT_NE(large.find("a vocabulary of 5000 pieces is too large for these 300 sentences: try "), std::string::npos)
      << large;
  const std::string small = error_of([] { train(5); });
  EXPECT_NE(small.find("a vocabulary of 5 pieces is too small: the characters alone need "), std::string::npos)
      << small;
  EXPECT_EQ(error_of([] { train(50, {"", "  "}); }), "nothing to train on: the input holds no text");
}

}  // namespace
}  // namespace tessera
