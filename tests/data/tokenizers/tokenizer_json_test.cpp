#include <algorithm>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/tokenizers/json/pattern.h"
#include "src/data/tokenizers/engine_tokenizers.h"
#include "src/foreign/published_tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/test_name.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using nlohmann::json;

/// Returns the content of a file of tests/data/foreign/tokenizers.
std::string published(const std::string& name) {
  return io::read_file(test_data("foreign/tokenizers/" + name + ".json"));
}

std::shared_ptr<Tokenizer> tokenizer_of(const std::string& bytes, TokenizerJsonSettings settings = {}) {
  settings.context_length = std::max<std::int64_t>(settings.context_length, 4);
  return make_tokenizer_json(settings, {bytes, ""});
}

/// Compares the ids of each kind of tokenizer.json with those of Hugging Face's `tokenizers` library.
class TokenizerJsonFile : public testing::TestWithParam<std::string> {
 protected:
  std::string bytes() const { return published(GetParam()); }
  json expected() const { return json::parse(published("expected")); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJsonFile,
                         testing::Values("gemma", "clip", "gpt2", "llama", "wordpiece", "unigram", "wordlevel", "added"), test_name<std::string>);

TEST_P(TokenizerJsonFile, MatchesTheIdsOfTheTokenizersLibrary) {
  const auto tokenizer = tokenizer_of(bytes(), {.context_length = 500});
  const json all = expected();
  for (std::size_t i = 0; i < all["texts"].size(); ++i)
    EXPECT_EQ(tokenizer->encode(all["texts"][i].get<std::string>()),
              all["ids"][GetParam()][i].get<std::vector<std::int64_t>>())
        << all["texts"][i];
}

TEST_P(TokenizerJsonFile, TruncationKeepsTheEndToken) {
  const auto tokenizer = tokenizer_of(bytes(), {.context_length = 6});
  const json all = expected();
  const auto whole = all["ids"][GetParam()][1].get<std::vector<std::int64_t>>();
  const auto ids = tokenizer->encode(all["texts"][1].get<std::string>());
  ASSERT_EQ(ids.size(), 6U);
  EXPECT_EQ(ids.front(), whole.front());
  const bool has_end = GetParam() != "gpt2" && GetParam() != "llama" && GetParam() != "wordlevel";
  if (has_end) {
    EXPECT_EQ(ids.back(), whole.back());
  }
}

TEST_P(TokenizerJsonFile, DecodesPlainText) {
  const auto tokenizer = tokenizer_of(bytes());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a photo of a cat")), "a photo of a cat");
}

TEST(TokenizerJson, ClipBpeExportedForTransformersProducesTheSameIds) {
  ModelFile file;
  file.tokenizer = {"clip-bpe"};
  file.tokenizer.settings.set("cleanup", config::Node::scalar("none"));
  file.vocabulary = io::read_file(TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz");
  const auto own = tokenizers().make(file.tokenizer, "tokenizer", TokenizerContext{file.vocabulary, ""});
  const auto files = published_tokenizer_files(file, "transformers");
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")).at("tokenizer_class"), "CLIPTokenizer");
  const auto written = tokenizer_of(files.at("tokenizer.json"), {.context_length = 77});
  for (const char* text : {"a photo of a cat", "Two dogs, in 1987!", "don't panic: 42 balloons & a caf\u00E9", "TREES \t and\nsky  ", ""})
    EXPECT_EQ(written->encode(text), own->encode(text)) << text;
  EXPECT_TRUE(published_tokenizer_files(file, "open_clip").empty()) << "OpenCLIP ships CLIP's vocabulary";
}

TEST_P(TokenizerJsonFile, ProducesTheSameIdsAgainInAnotherThread) {
  const auto tokenizer = tokenizer_of(bytes(), {.context_length = 500});
  const auto texts = expected()["texts"].get<std::vector<std::string>>();
  std::vector<std::vector<std::int64_t>> here, there;
  for (const std::string& text : texts) here.push_back(tokenizer->encode(text));
  std::thread([&] {
    for (const std::string& text : texts) there.push_back(tokenizer->encode(text));
  }).join();
  EXPECT_EQ(here, there);
}

TEST_P(TokenizerJsonFile, InvalidUtf8IsReplaced) {
  const auto tokenizer = tokenizer_of(bytes());
  EXPECT_EQ(tokenizer->encode("a \xFF\xE3\x81 cat"), tokenizer->encode("a \uFFFD\uFFFD cat"));
}

TEST_P(TokenizerJsonFile, ReadsAVeryLongText) {
  const auto tokenizer = tokenizer_of(bytes());
  const std::string words = std::string(200'000, 'a') + " " + std::string(200'000, '!');
  EXPECT_LE(std::ssize(tokenizer->encode(words)), tokenizer->context_length());
}

TEST(TokenizerJson, ZeroIdIsReplacedByZero) {
  TokenizerJsonSettings settings{.zero_id = tokenizer_of(published("wordpiece"))->encode("").back()};
  EXPECT_EQ(tokenizer_of(published("wordpiece"), settings)->encode("").back(), 0);
}

TEST(TokenizerJson, AddedTokensStripAdjacentSpaceIfSet) {
  const auto with = [](const json& flags) {
    json file = json::parse(published("llama"));
    file["added_tokens"].push_back({{"content", "<x>"}, {"id", 9999}, {"special", true}, {"normalized", false}});
    file["added_tokens"].back().update(flags);
    return tokenizer_of(file.dump());
  };
  const auto plain = with(json::object()), left = with({{"lstrip", true}}), right = with({{"rstrip", true}});
  const std::string text = "a  <x> \t b";
  EXPECT_NE(plain->encode(text), plain->encode("a<x> \t b"));
  EXPECT_NE(plain->encode(text), plain->encode("a  <x>b"));
  EXPECT_EQ(left->encode(text), plain->encode("a<x> \t b"));
  EXPECT_EQ(right->encode(text), plain->encode("a  <x>b"));
}

TEST(TokenizerJson, FollowsTheTruncationOfTheFile) {
  json file = json::parse(published("wordpiece"));
  const auto whole = tokenizer_of(file.dump())->encode("a photo of a cat");
  file["truncation"] = {{"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  EXPECT_EQ(tokenizer_of(file.dump())->encode("a photo of a cat"), (std::vector<std::int64_t>{whole[0], whole[1], whole[2], whole.back()}));
  EXPECT_EQ(tokenizer_of(file.dump())->count_ids("a photo of a cat"), std::ssize(whole)) << "count_ids must ignore the file's limit";
  file["truncation"]["direction"] = "Left";
  const std::size_t n = whole.size();
  EXPECT_EQ(tokenizer_of(file.dump())->encode("a photo of a cat"), (std::vector<std::int64_t>{whole[0], whole[n - 3], whole[n - 2], whole.back()}));
}

/// Checks that a folder with older vocabulary files results in the same ids as the equivalent tokenizer.json.
class OlderFiles : public FolderTest {
 protected:
  static std::shared_ptr<Tokenizer> from(const std::string& path) {
    TokenizerJsonSettings settings{.model = config::FilePath(path), .context_length = 500};
    return make_tokenizer_json(settings, {});
  }
  void expect_equal(const std::string& path, const std::string& kind) const {
    const auto wanted = tokenizer_of(published(kind), {.context_length = 500});
    const auto got = from(path);
    for (const json& text : json::parse(published("expected"))["texts"])
      EXPECT_EQ(got->encode(text.get<std::string>()), wanted->encode(text.get<std::string>())) << text;
  }
};

TEST_F(OlderFiles, VocabularyAndMergesAreReadAsClipBpe) {
  const json model = json::parse(published("clip"))["model"];
  std::string merges = "#version: 0.2\n";
  for (const json& merge : model["merges"]) merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write("merges.txt", merges);
  expect_equal(write("vocab.json", model["vocab"].dump()), "clip");
}

TEST_F(OlderFiles, VocabularyLinesAreReadAsWordpiece) {
  const json vocabulary = json::parse(published("wordpiece"))["model"]["vocab"];
  std::vector<std::string> lines(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) lines[id.get<std::size_t>()] = token;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  expect_equal(write("vocab.txt", text), "wordpiece");
}

std::string older_folder(const std::string& name) {
  return test_data("foreign/older_tokenizers/" + name);
}

ForeignModel model_with_texts_of(std::int64_t context_length) {
  ForeignModel model;
  model.tokenizer_in_folder = true;
  model.model.text->encoder.settings = config::from_json({{"context_length", context_length}}, "");
  return model;
}

std::shared_ptr<Tokenizer> tokenizer_in(const std::string& folder, const ForeignModel& model) {
  const auto found = tokenizer_of_folder(model, folder);
  return tokenizers().make(found->settings, "tokenizer", TokenizerContext{found->vocabulary, found->file});
}

/// Compares ids with those of transformers, for each kind of folder with vocabulary files in formats older than tokenizer.json.
class OlderFolder : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OlderFolder, testing::Values("roberta", "gpt2", "bert", "bert_cased", "xlm_roberta", "t5", "siglip"), test_name<std::string>);

TEST_P(OlderFolder, MatchesTheIdsOfTransformers) {
  const auto tokenizer = tokenizer_in(older_folder(GetParam()), model_with_texts_of(500));
  const json expected = json::parse(io::read_file(older_folder("expected.json")));
  for (std::size_t i = 0; i < expected["texts"].size(); ++i)
    EXPECT_EQ(tokenizer->encode(expected["texts"][i].get<std::string>()), expected["ids"][GetParam()][i].get<std::vector<std::int64_t>>())
        << expected["texts"][i];
  EXPECT_EQ(tokenizer->pad_id(), expected["pad_id"][GetParam()].get<std::int64_t>());
}

/// Compares ids with those of the classes of transformers that make parts of a tokenizer.json themselves.
class TokenizerClass : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(TokenizerJson, TokenizerClass,
                         testing::Values("siglip2", "siglip2_of_model", "siglip2_without_config", "gemma", "clip", "clip_of_model", "clip_without_class",
                                         "bert", "bert_cased", "bert_accents", "bert_chinese", "bert_of_model", "distilbert", "gpt2", "gpt2_space",
                                         "xlm_roberta", "xlm_roberta_space", "t5"),
                         test_name<std::string>);

TEST_P(TokenizerClass, MatchesTheIdsOfTransformers) {
  const json all = json::parse(io::read_file(test_data("foreign/tokenizer_classes.json"))), expected = all["cases"][GetParam()];
  json file = json::parse(published(expected["file"]));
  file.update(expected["changes"]);
  const TemporaryFolder folder;
  io::write_file(folder / "tokenizer.json", file.dump());
  for (const char* name : {"tokenizer_config", "config"})
    if (!expected[name].empty()) io::write_file(folder / (std::string(name) + ".json"), expected[name].dump());
  const auto tokenizer = tokenizer_in(folder.path(), model_with_texts_of(500));
  for (std::size_t i = 0; i < all["texts"].size(); ++i)
    EXPECT_EQ(tokenizer->encode(all["texts"][i].get<std::string>()), expected["ids"][i].get<std::vector<std::int64_t>>()) << all["texts"][i];
  if (expected["pad_id"].is_number()) {
    EXPECT_EQ(tokenizer->pad_id(), expected["pad_id"].get<std::int64_t>());
  }
}

TEST_F(OlderFiles, SiglipTokenizerReadsItsModelAndFlagsButNoTokenizerJson) {
  write("spiece.model", io::read_file(older_folder("siglip/spiece.model")));
  write("tokenizer.json", published("gemma"));
  write("tokenizer_config.json", R"({"tokenizer_class": "SiglipTokenizer", "do_lower_case": false})");
  const auto tokenizer = tokenizer_in(folder_, model_with_texts_of(500));
  EXPECT_EQ(tokenizer->encode("Two Dogs"), (std::vector<std::int64_t>{20, 2, 115, 9, 20, 2, 9, 114, 10, 1}));  // as in transformers 5.24
  EXPECT_EQ(tokenizer->pad_id(), 1) << "the class pads with </s>";
}

TEST_F(OlderFiles, PaddingOnTheLeftIsRefusedIfTheModelReadsThePadding) {
  write("tokenizer.json", published("gemma"));
  write("tokenizer_config.json", R"({"tokenizer_class": "Siglip2Tokenizer", "padding_side": "left"})");
  ForeignModel model = model_with_texts_of(500);
  EXPECT_NO_THROW(tokenizer_in(folder_, model));
  model.padding_is_text = true;
  EXPECT_EQ(error_of([&] { tokenizer_in(folder_, model); }),
            path("tokenizer.json") + ": pads texts on the left, and this model reads the padding: our tokenizers pad on the right");
}

TEST(OlderFolders, TheSeparatorBecomesZeroIfOpenClipStripsIt) {
  ForeignModel model = model_with_texts_of(8);
  model.cleanup = "whitespace";
  model.separator_is_padding = true;
  const auto tokenizer = tokenizer_in(older_folder("bert"), model);
  const json expected = json::parse(io::read_file(older_folder("expected.json")));
  const torch::Tensor ids = tokenizer->encode_batch(expected["texts"].get<std::vector<std::string>>()).ids;
  for (std::int64_t row = 0; row < ids.size(0); ++row)
    for (std::int64_t column = 0; column < ids.size(1); ++column)
      EXPECT_EQ(ids[row][column].item<std::int64_t>(), expected["ids"]["strip_sep_token"][static_cast<std::size_t>(row)][static_cast<std::size_t>(column)].get<std::int64_t>());
}

TEST(OlderFolders, StrippingAMissingSeparatorIsAnError) {
  ForeignModel model = model_with_texts_of(8);
  model.separator_is_padding = true;
  for (const char* kind : {"gpt2", "siglip"}) EXPECT_THROW(tokenizer_of_folder(model, older_folder(kind)), UserError) << kind;
}

TEST_F(OlderFiles, AVocabularyWithoutMergesIsReported) {
  const std::string error = error_of([&] { from(write("vocab.json", "{}")); });
  EXPECT_NE(error.find("merges.txt: is missing"), std::string::npos) << error;
}

/// A byte-pair model of random merges over a few characters, and a reference encoder that always merges the pair of the lowest rank;
/// among equal pairs, it merges the leftmost.
class RandomMerges {
 public:
  RandomMerges(std::mt19937& random, bool in_order) {
    const auto draw = [&](std::size_t count) { return random() % count; };
    const std::size_t count = 1 + draw(40);
    fuses_ = draw(2) == 0;
    while (merges_.size() < count) {
      const std::string left = tokens_[1 + draw(tokens_.size() - 1)], right = tokens_[1 + draw(tokens_.size() - 1)];
      if (left.size() + right.size() > 9) continue;
      if (std::find(tokens_.begin(), tokens_.end(), left + right) == tokens_.end()) tokens_.push_back(left + right);
      merges_.emplace_back(left, right);
    }
    if (!in_order) std::shuffle(merges_.begin(), merges_.end(), random);
  }

  std::string file() const {
    json vocabulary, merges = json::array();
    for (std::size_t i = 0; i < tokens_.size(); ++i) vocabulary[tokens_[i]] = i;
    for (const auto& [left, right] : merges_) merges.push_back(left + " " + right);
    return json{{"model", {{"type", "BPE"}, {"unk_token", "?"}, {"fuse_unk", fuses_}, {"vocab", vocabulary}, {"merges", merges}}}}.dump();
  }

  std::vector<std::int64_t> ids(const std::string& text) const {
    std::vector<std::string> row;
    for (const char c : text) {
      const bool known = std::string("abc").find(c) != std::string::npos;
      if (known || !fuses_ || row.empty() || row.back() != "?") row.push_back(std::string(1, known ? c : '?'));
    }
    for (std::size_t at = lowest(row); at < row.size(); at = lowest(row)) {
      row[at] += row[at + 1];
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    std::vector<std::int64_t> out;
    for (const std::string& token : row) out.push_back(std::find(tokens_.begin(), tokens_.end(), token) - tokens_.begin());
    return out;
  }

 private:
  // The rank of a merge is its place in the list. If the merge is listed more than once, its last place counts.
  std::size_t rank_of(const std::string& left, const std::string& right) const {
    for (std::size_t rank = merges_.size(); rank > 0; --rank)
      if (merges_[rank - 1] == std::pair{left, right}) return rank - 1;
    return merges_.size();
  }
  std::size_t lowest(const std::vector<std::string>& row) const {
    std::size_t best = merges_.size(), at = row.size();
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      if (const std::size_t rank = rank_of(row[i], row[i + 1]); rank < best) {
        best = rank;
        at = i;
      }
    return at;
  }

  std::vector<std::string> tokens_ = {"?", "a", "b", "c"};
  std::vector<std::pair<std::string, std::string>> merges_;
  bool fuses_;
};

class RandomBytePairs : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(TokenizerJson, RandomBytePairs, testing::Bool(),
                         [](const auto& order) { return order.param ? "MergesInOrder" : "MergesShuffled"; });

TEST_P(RandomBytePairs, MatchMergingPairByPair) {
  std::mt19937 random(3);  // NOLINT: a fixed seed, so that every run tests the same texts
  for (int file = 0; file < 200; ++file) {
    const RandomMerges merges(random, GetParam());
    const auto tokenizer = tokenizer_of(merges.file(), {.context_length = 500});
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (std::size_t length = 1 + random() % 60; length > 0; --length) text += "aaabbbccz"[random() % 9];
      ASSERT_EQ(tokenizer->encode(text), merges.ids(text)) << text << " with " << merges.file();
    }
  }
}

TEST(TokenizerJson, PaddingThatCountsAsTextIsNotMasked) {
  TokenizerJsonSettings settings{.context_length = 12, .pad_is_text = true};
  const TowerInput batch = tokenizer_of(published("gemma"), settings)->encode_batch({"a cat", ""});
  EXPECT_TRUE(batch.mask.all().item<bool>());
  EXPECT_EQ(batch.ids[1][0].item<std::int64_t>(), 1) << "the end token of an empty text";
  EXPECT_EQ(batch.ids[1][1].item<std::int64_t>(), 0) << "padding";
}

TEST(TokenizerJson, RegularExpressionsHaveTheWordCharactersOfOniguruma) {
  struct Case {
    std::string regex, text;
    std::vector<std::string> matches;  // of the tokenizers library
  };
  for (const auto& [regex, text, matches] : {Case{R"(\b\w)", "5\u00BD a", {"5", "a"}},
                                             Case{R"(\d{1,3}(?=(?:\d{3})*\b))", "12345\u00AD", {"12", "345"}},
                                             Case{R"(\B.)", "ab\u00BD \u00ADc", {"b", "\u00BD", "\u00AD"}},
                                             Case{R"([\b]+)", "b\b", {"\b"}},
                                             Case{R"(\p{Word}+)", "a\u200Db\u00BD", {"a", "b\u00BD"}},
                                             Case{R"([\p{Word}]+)", "a\u200Db\u00BD", {"a", "b"}}}) {
    std::vector<json_tokenizer::Span> spans;
    json_tokenizer::make_icu_pattern(regex, "test")(text, spans);
    std::vector<std::string> found;
    for (const auto& [begin, end] : spans) found.push_back(text.substr(begin, end - begin));
    EXPECT_EQ(found, matches) << regex;
  }
}

TEST(TokenizerJson, UnknownPartsAreReported) {
  const auto refused = [](const std::string& pointer, const json& value) {
    json file = json::parse(published("gemma"));
    file[json::json_pointer(pointer)] = value;
    return error_of([&] { tokenizer_of(file.dump()); });
  };
  EXPECT_NE(refused("/normalizer", {{"type", "Newer"}}).find("its normalizer \"Newer\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}).find("its pre_tokenizer \"UnicodeScripts\""), std::string::npos);
  EXPECT_NE(refused("/post_processor", {{"type", "New"}}).find("its post_processor \"New\""), std::string::npos);
  EXPECT_NE(refused("/model/type", "Newer").find("its model \"Newer\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/model/newer", 1).find("its model's \"newer\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/model/dropout", 0.5).find("its model's dropout is not supported"), std::string::npos);
  EXPECT_NE(refused("/extra", 1).find("its part \"extra\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/version", "2.0").find("a version other than 1.0"), std::string::npos);
  EXPECT_NE(refused("/added_tokens/0/newer", true).find("\"newer\" of the added token \"<pad>\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/normalizer", {{"type", "NFC"}, {"newer", 1}}).find("\"newer\" of its normalizer \"NFC\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}}).find("regular expression \"(a\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}).find("Precompiled is damaged"), std::string::npos);
  EXPECT_NE(refused("/pre_tokenizer/behavior", "Newer").find("has the behavior \"Newer\", which is not supported"), std::string::npos);
  EXPECT_NE(refused("/decoder", {{"type", "CTC"}}).find("its decoder \"CTC\" is not supported"), std::string::npos);
  EXPECT_NE(refused("/padding", {{"pad_id", 0}, {"direction", "Left"}}).find("pads on the left"), std::string::npos);
  EXPECT_NE(refused("/truncation", {{"max_length", 8}, {"strategy", "OnlySecond"}}).find("has the strategy \"OnlySecond\""), std::string::npos);
  EXPECT_NE(refused("/post_processor/single", json::array()).find("must name the text exactly once"), std::string::npos);
  EXPECT_NE(refused("/model/vocab", 3).find("has no vocab"), std::string::npos);
  EXPECT_NE(refused("/model/merges/0", "zz qq").find("joins tokens that its vocab lacks"), std::string::npos);
  EXPECT_EQ(refused("/model/dropout", nullptr), "no error");
}

}  // namespace
}  // namespace tessera
