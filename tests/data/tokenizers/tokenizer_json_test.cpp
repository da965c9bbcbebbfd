#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/test_data.h"
#include "tests/support/test_name.h"
#include <tessera/base/error.h>
#include <tessera/data/tokenizers/published_tokenizer.h>
#include <tessera/data/tokenizers/tokenizer_json.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using nlohmann::json;

std::string folder() {
  return test_data("foreign/tokenizers");
}

std::shared_ptr<Tokenizer> tokenizer_of(const std::string& bytes, TokenizerJsonSettings settings = {}) {
  settings.context_length = std::max<std::int64_t>(settings.context_length, 4);
  return make_tokenizer_json(settings, {bytes, ""});
}

/// Each kind of tokenizer.json, with the ids that the tokenizers library gives.
class TokenizerJsonFile : public testing::TestWithParam<std::string> {
 protected:
  std::string bytes() const { return io::read_file(folder() + "/" + GetParam() + ".json"); }
  json expected() const { return json::parse(io::read_file(folder() + "/expected.json")); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJsonFile, testing::Values("gemma", "clip", "gpt2"), test_name<std::string>);

TEST_P(TokenizerJsonFile, GivesTheIdsOfItsOwnLibrary) {
  TokenizerJsonSettings settings;
  settings.context_length = 500;
  const auto tokenizer = tokenizer_of(bytes(), settings);
  const json all = expected();
  for (std::size_t i = 0; i < all["texts"].size(); ++i)
    EXPECT_EQ(tokenizer->encode(all["texts"][i].get<std::string>()),
              all["ids"][GetParam()][i].get<std::vector<std::int64_t>>())
        << all["texts"][i];
}

TEST_P(TokenizerJsonFile, CutsTextsSoThatTheEndTokenStays) {
  TokenizerJsonSettings settings;
  settings.context_length = 6;
  const auto tokenizer = tokenizer_of(bytes(), settings);
  const json all = expected();
  const auto whole = all["ids"][GetParam()][1].get<std::vector<std::int64_t>>();
  const auto ids = tokenizer->encode(all["texts"][1].get<std::string>());
  ASSERT_EQ(ids.size(), 6U);
  EXPECT_EQ(ids.front(), whole.front());
  if (GetParam() != "gpt2") EXPECT_EQ(ids.back(), whole.back());
}

TEST_P(TokenizerJsonFile, DecodesPlainTextInItsLowerCase) {
  const auto tokenizer = tokenizer_of(bytes());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a photo of a cat")), "a photo of a cat");
}

TEST(TokenizerJson, ClipsBytePairsWrittenForTransformersGiveTheSameIds) {
  ModelFile file;
  file.tokenizer = {"clip-bpe"};
  file.tokenizer.settings.set("cleanup", config::Node::scalar("none"));
  file.vocabulary = io::read_file(TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz");
  const auto own = tokenizers().make(file.tokenizer, "tokenizer", TokenizerContext{file.vocabulary, ""});
  const auto files = published_tokenizer_files(file, "transformers");
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")).at("tokenizer_class"), "CLIPTokenizer");
  TokenizerJsonSettings settings;
  settings.context_length = 77;
  const auto written = tokenizer_of(files.at("tokenizer.json"), settings);
  for (const char* text : {"a photo of a cat", "Two dogs, in 1987!", "don't panic: 42 balloons & a caf\u00E9", "TREES \t and\nsky  ", ""})
    EXPECT_EQ(written->encode(text), own->encode(text)) << text;
  EXPECT_TRUE(published_tokenizer_files(file, "open_clip").empty()) << "OpenCLIP has them";
}

TEST(TokenizerJson, PaddingThatIsTextIsRealInTheMask) {
  TokenizerJsonSettings settings;
  settings.pad_is_text = true;
  settings.context_length = 12;
  const TowerInput batch = tokenizer_of(io::read_file(folder() + "/gemma.json"), settings)->encode_batch({"a cat", ""});
  EXPECT_TRUE(batch.mask.all().item<bool>());
  EXPECT_EQ(batch.ids[1][0].item<std::int64_t>(), 1) << "the end token of an empty text";
  EXPECT_EQ(batch.ids[1][1].item<std::int64_t>(), 0) << "padding";
}

TEST(TokenizerJson, WhatIsNotKnownIsNamed) {
  const auto refused = [](const std::string& pointer, const json& value) -> std::string {
    json file = json::parse(io::read_file(folder() + "/gemma.json"));
    file[json::json_pointer(pointer)] = value;
    try {
      tokenizer_of(file.dump());
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(refused("/normalizer", {{"type", "Nmt"}}).find("its normalizer Nmt is not known here"), std::string::npos);
  EXPECT_NE(refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}).find("its pre_tokenizer UnicodeScripts"), std::string::npos);
  EXPECT_NE(refused("/post_processor", {{"type", "New"}}).find("its post_processor New"), std::string::npos);
  EXPECT_NE(refused("/model/type", "WordLevel").find("its model WordLevel is not known here"), std::string::npos);
  EXPECT_NE(refused("/extra", 1).find("its part extra is not known here"), std::string::npos);
  EXPECT_NE(refused("/model/continuing_subword_prefix", "##").find("continuing_subword_prefix"), std::string::npos);
  EXPECT_NE(refused("/added_tokens/0/lstrip", true).find("lstrip of the added token"), std::string::npos);
  EXPECT_NE(refused("/model/vocab", 3).find("has no vocab or merges"), std::string::npos);
  EXPECT_NE(refused("/model/merges/0", "zz qq").find("joins tokens that its vocab lacks"), std::string::npos);
  EXPECT_EQ(refused("/model/dropout", nullptr), "no error");
}

}  // namespace
}  // namespace tessera
