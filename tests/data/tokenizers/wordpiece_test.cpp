#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/shapes/shapes.h"
#include "tests/data/tokenizers/golden.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using test::Ids;
using test::wordpiece;

TEST(WordPiece, MatchesTheIdsOfTheRustTokenizers) {
  const auto whole = wordpiece(1'000'000), cut = wordpiece(76);
  for (const nlohmann::json& line : test::golden_lines("wordpiece.jsonl")) {
    EXPECT_EQ(whole->encode(test::text_of(line)), line.at("ids").get<Ids>()) << line.dump();
    EXPECT_EQ(cut->encode(test::text_of(line)), line.at("ids_76").get<Ids>()) << line.dump();
  }
}

TEST(WordPiece, CasedModeKeepsCaseAndAccents) {
  const auto tokenizer = wordpiece(76, false);
  EXPECT_EQ(tokenizer->encode("a CAT"), tokenizer->encode("a [UNK]"));
  EXPECT_EQ(tokenizer->encode("caf\u00E9"), tokenizer->encode("[UNK]"));
}

void expect_one_token_a_word(const std::string& vocabulary, const ShapesSettings& settings) {
  const auto tokenizer =
      make_wordpiece({.vocab = {TESSERA_SOURCE_DIR "/configs/vocabularies/" + vocabulary + "/vocab.txt"}}, {});
  const ShapesSource source(settings);
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const Sample sample = source.get(i);
    std::vector<std::string> texts = sample.captions;
    texts.push_back(sample.summary);
    for (const std::string& text : texts) {
      const Ids ids = tokenizer->encode(text);
      const auto pieces = 1 + std::count(text.begin(), text.end(), ' ') + std::count(text.begin(), text.end(), ',');
      EXPECT_EQ(std::ssize(ids), 2 + pieces) << text;
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0) << text;
    }
  }
}

// Tests the shipped vocabularies that are made for captions of the built-in shapes.
TEST(WordPiece, EveryWordOfTheShapesCaptionsIsOneTokenOfTheirVocabulary) {
  expect_one_token_a_word("shapes-wordpiece", {.size = 400, .captions = 5, .partial_captions = 0.5});
  expect_one_token_a_word("shapes-web-wordpiece", {.size = 400, .captions = 5, .partial_captions = 0.5});
  expect_one_token_a_word("shapes-web-wordpiece", {.size = 3000, .captions = 5, .style = "web"});
}

TEST(WordPiece, DecodeJoinsPieces) {
  const auto tokenizer = wordpiece();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("A photo of tab-separated words")), "a photo of tab - separated words");
  EXPECT_EQ(error_of([&] { tokenizer->decode({4000}); }), "wordpiece: id 4000 is not in 0..3999");
}

TEST(WordPiece, AMegabyteTakesLinearTime) {
  const auto tokenizer = wordpiece(1'000'000);
  for (const char* unit : {"a", "[", "a ", "[CLS]", "\xCC\x81", "\u4E2D", "\u1100\u1161"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_EQ(tokenizer->encode(text).back(), 3);
  }
}

TEST(WordPiece, BatchesArePaddedWithThePadId) {
  const TowerInput batch = wordpiece(5)->encode_batch({"a", "a photo of a cat"});
  EXPECT_EQ(batch.ids[0][4].item<std::int64_t>(), 0);
  EXPECT_EQ(batch.mask.sum(1)[0].item<std::int64_t>(), 3);
  EXPECT_EQ(batch.mask.sum(1)[1].item<std::int64_t>(), 5);
}

TEST(WordPiece, AMissingSpecialTokenIsReported) {
  const std::string path = testing::TempDir() + "no_mask.txt";
  io::write_file(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
  EXPECT_EQ(
      error_of([&] {
        make_wordpiece({path, 76, true}, {});
      }),
      "wordpiece: vocab: " + path + ": has no [MASK] among its 5 lines; expected BERT's vocab.txt, one piece per line");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera
