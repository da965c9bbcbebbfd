#include <map>

#include <gtest/gtest.h>

#include "tests/data/tokenizers/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_name.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using test::clip_bpe;
using test::Ids;

// A higher cleanup level includes the lower ones, so each level must also pass the reference lines of the lower levels.
class ClipBpeGolden : public testing::TestWithParam<const char*> {};

TEST_P(ClipBpeGolden, MatchesOpenClipsIdsOnEveryLineThatTheLevelCovers) {
  const std::vector<std::string> levels = {"none", "basic", "mojibake", "full"};
  const auto rank = [&](const std::string& level) {
    return std::find(levels.begin(), levels.end(), level) - levels.begin();
  };
  std::map<std::int64_t, std::shared_ptr<Tokenizer>> tokenizers;
  int tried = 0;
  for (const nlohmann::json& line : test::golden_lines("clip_bpe.jsonl")) {
    if (rank(line.at("needs").get<std::string>()) > rank(GetParam())) continue;
    const auto length = line.at("context_length").get<std::int64_t>();
    std::shared_ptr<Tokenizer>& tokenizer = tokenizers[length];
    if (!tokenizer) tokenizer = clip_bpe(GetParam(), length);
    EXPECT_EQ(tokenizer->encode(test::text_of(line)), line.at("ids").get<Ids>()) << line.dump();
    ++tried;
  }
  EXPECT_GE(tried, 230);
}

INSTANTIATE_TEST_SUITE_P(Levels, ClipBpeGolden, testing::Values("none", "basic", "mojibake", "full"), test_name<const char*>);

TEST(ClipBpe, InvalidUtf8IsReplaced) {
  const auto tokenizer = clip_bpe();
  EXPECT_EQ(tokenizer->encode("caf\xC3 x\xFF\xFE"), tokenizer->encode("caf\uFFFD x\uFFFD\uFFFD"));
  EXPECT_EQ(tokenizer->encode("\xED\xA0\x80"), tokenizer->encode("\uFFFD\uFFFD\uFFFD"));
  EXPECT_EQ(tokenizer->encode("\xF0\x9F\x98"), tokenizer->encode("\uFFFD"));
}

TEST(ClipBpe, EmptyTextIsStartAndEnd) {
  for (const char* text : {"", " ", "\n\t", "&nbsp;", "\u200B\u3000"})
    EXPECT_EQ(clip_bpe()->encode(text).front(), 49406) << text;
  EXPECT_EQ(clip_bpe()->encode("\u3000&nbsp; \n"), (Ids{49406, 49407}));
}

// In linear time a megabyte takes well under a second. In quadratic time it would take hours, beyond ctest's time limit.
TEST(ClipBpe, AMegabyteOfAnythingTakesLinearTime) {
  constexpr std::size_t size = 1'000'000;
  const auto repeated = [](const std::string& unit) {
    std::string text;
    while (text.size() < size) text += unit;
    return text;
  };
  const auto tokenizer = clip_bpe();
  for (const std::string unit :
       {"a", "ab ", "!", "\u03A3.", "&", "&amp", "amp;", "&amp;amp;", "&#38;#38;", "\xCC\x81", "a\xCC\x81\xCC\xA3",
        "\x1B[1", "\xFF", "<start_of_text>", "''''", "\n", "\r\n", "\uFF06amp\uFF1B", "\u4E2D"}) {
    const Ids ids = tokenizer->encode(unit == "amp;" ? "&" + repeated(unit) : repeated(unit));
    EXPECT_LE(ids.size(), 77u);
    EXPECT_EQ(ids.back(), 49407);
  }
}

TEST(ClipBpe, NestedAmpersandsAreUnescapedCompletely) {
  const auto tokenizer = clip_bpe();
  EXPECT_EQ(tokenizer->encode("a &amp;amp;amp;amp;amp;lt; b"), tokenizer->encode("a < b"));
}

TEST(ClipBpe, DecodeReturnsTheText) {
  const auto tokenizer = clip_bpe();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("A photo of a  Caf\u00E9 \U0001F600 \u4E2D\u6587")),
            "a photo of a caf\u00E9 \U0001F600 \u4E2D\u6587");
  EXPECT_EQ(tokenizer->decode({49406, 2368, 49407, 0, 0}), "cat");
  EXPECT_EQ(tokenizer->decode({}), "");
  EXPECT_EQ(error_of([&] { tokenizer->decode({49408}); }), "clip-bpe: id 49408 is not in 0..49407");
}

TEST(ClipBpe, BatchesArePaddedAndMaskedByLength) {
  const auto tokenizer = clip_bpe("basic", 6);
  const TowerInput batch = tokenizer->encode_batch({"a cat", "", "!a! b c d e f"});
  ASSERT_EQ(batch.ids.sizes(), (at::IntArrayRef{3, 6}));
  const auto ids = batch.ids.accessor<std::int64_t, 2>();
  const auto mask = batch.mask.accessor<bool, 2>();
  const std::vector<Ids> expected = {{49406, 320, 2368, 49407, 0, 0}, {49406, 49407, 0, 0, 0, 0}};
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 6; ++column) {
      EXPECT_EQ(ids[row][column], expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)]);
      EXPECT_EQ(mask[row][column], column < (row == 0 ? 4 : 2));
    }
  EXPECT_TRUE(batch.mask[2].all().item<bool>());
  EXPECT_EQ(ids[2][5], 49407);
  EXPECT_EQ(tokenizer->encode_batch({}).ids.sizes(), (at::IntArrayRef{0, 6}));
}

TEST(ClipBpe, TheVocabularyMayComeFromACheckpoint) {
  const auto file = clip_bpe();
  const auto checkpoint = make_clip_bpe({}, {file->vocabulary_bytes()});
  EXPECT_EQ(checkpoint->encode("two dogs"), file->encode("two dogs"));
  EXPECT_EQ(file->vocabulary_bytes(), io::read_file(test::clip_merges));
}

TEST(ClipBpe, WithoutAFileTheShippedVocabularyIsUsed) {
  EXPECT_EQ(make_clip_bpe({}, {})->vocabulary_bytes(), io::read_file(test::clip_merges));
  EXPECT_EQ(error_of([] { make_clip_bpe({}, {"", "the checkpoint has none"}); }), "the checkpoint has none");
}

class ClipBpeErrors : public FolderTest {
 protected:
  static std::string error_with(const std::string& path) {
    return error_of([&] { make_clip_bpe({path, 77, "basic"}, {}); });
  }
};

TEST_F(ClipBpeErrors, NameKeyFileAndCause) {
  EXPECT_EQ(error_with("/none/x.gz"), "clip-bpe: merges: /none/x.gz: cannot read: No such file or directory");
  std::string path = write("text.txt.gz", "#version\na b\n");
  EXPECT_EQ(error_with(path), "clip-bpe: merges: " + path + ": is named .gz but is not gzip-compressed");
  path = write("short.txt", "#version\na b\nc d\n");
  EXPECT_EQ(error_with(path),
            "clip-bpe: merges: " + path +
                ": has 2 merges, clip-bpe needs 48,894; is this CLIP's bpe_simple_vocab_16e6.txt, and whole?");
  path = write("odd.txt", "#version\na b\nc d e\n");
  EXPECT_EQ(error_with(path),
            "clip-bpe: merges: " + path +
                ":3: expected two symbols that merge, got 3; is this CLIP's bpe_simple_vocab_16e6.txt?");
  path = write("empty.txt", "");
  EXPECT_NE(error_with(path).find("has 0 merges"), std::string::npos);
  const std::string whole = io::read_file(test::clip_merges);
  path = write("cut.txt.gz", whole.substr(0, whole.size() / 2));
  EXPECT_NE(error_with(path).find("cut.txt.gz: damaged gzip file"), std::string::npos) << error_with(path);
}

TEST(ClipBpe, AnUnknownCleanupIsAConfigurationError) {
  const config::Node settings = config::parse_yaml("{merges: x, cleanup: bsaic}", "a.yaml");
  EXPECT_NE(error_of([&] {
              tokenizers().make({"clip-bpe", settings}, "tokenizer", {});
            }).find("a.yaml:1: tokenizer.cleanup: "),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
