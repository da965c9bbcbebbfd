#include <sstream>

#include <gtest/gtest.h>

#include "tests/data/tokenizers/golden.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using test::Ids;

const std::string clip = "tessera-data tokenize --tokenizer clip-bpe";  // with the shipped vocabulary
const std::string bert = "tessera-data tokenize --tokenizer wordpiece --vocab " + test::wordpiece_vocab;

class TokenizeProgram : public FolderTest {
 protected:
  // Returns the ids of each line that a program prints. Each test sends several lines at once, because a program takes a second to start.
  std::vector<Ids> ids_of(const std::string& command, const std::string& input) const {
    std::vector<Ids> out;
    std::istringstream lines(output_of(command + " < " + write("input", input)));
    for (std::string line; std::getline(lines, line);)
      out.push_back(nlohmann::json::parse(line, nullptr, false).value("ids", Ids{}));
    return out;
  }
};

TEST_F(TokenizeProgram, AcceptsTextHexBlankLinesAndLoneSurrogates) {
  const auto tokenizer = test::clip_bpe();
  const std::vector<std::string> texts = {
      "a cat", "", "a\uFFFD cat", "", "a \uFFFD b \uFFFD \U0001F600 \\ud83d", "\uFFFD\U0001F600"};
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer->encode(text));
  EXPECT_EQ(ids_of(clip, R"({"text": "a cat"}

{"text": ""}
{"utf8_hex": "61fF20636174"}
{"text": "ignored", "utf8_hex": ""}
{"text": "a \ud83d b \ude00 \ud83d\ude00 \\ud83d"}
{"text": "\ud83d\uD83D\uDE00"})"),
            expected);
}

TEST_F(TokenizeProgram, OptionsSetTheTokenizersSettings) {
  const std::string text = "A caf\u00C3\u00A9 on the corner", line = "{\"text\": \"" + text + "\"}\n";
  const auto ids = [&](const std::string& command) { return ids_of(command, line).at(0); };
  EXPECT_EQ(ids(clip + " --set cleanup=full --context-length 4"),
            test::clip_bpe("full", 4)->encode("a caf\u00E9 on the corner"));
  EXPECT_EQ(ids(bert + " --context-length 5"), test::wordpiece(5)->encode(text));
  EXPECT_EQ(ids(bert + " --set lower_case=false"), test::wordpiece(76, false)->encode(text));
  EXPECT_NE(refusal_of(clip + " --set lower_case=false < " + path("input")).find("lower_case"), std::string::npos);
}

using BenchTokenizer = FolderTest;

TEST_F(BenchTokenizer, PrintsATableAndWritesJson) {
  const std::string captions = write("captions.txt", "a cat\nTwo dogs, caf\u00E9\n");
  const std::string text =
      output_of("tessera-bench tokenizer --repeats 1 --threads 2 --captions " + captions + " --json " + path("bench.json") +
                " --tokenizers '{name: clip-bpe, merges: " + test::clip_merges + "}' '{name: wordpiece, vocab: " +
                test::wordpiece_vocab + "}'");
  EXPECT_NE(text.find("2 captions of "), std::string::npos) << text;
  const nlohmann::json measured = nlohmann::json::parse(io::read_file(path("bench.json")));
  EXPECT_EQ(measured.at("threads"), 2);
  ASSERT_EQ(measured.at("tokenizers").size(), 2u);
  EXPECT_EQ(measured["tokenizers"][0].at("ids_per_caption"), 5.0);
  EXPECT_GT(measured["tokenizers"][1].at("captions_per_second").get<double>(), 0);
  EXPECT_GE(measured["tokenizers"][1].at("processor_seconds").get<double>(), 0);
  expect_refused("tessera-bench tokenizer --captions /none",
                 "tessera-bench: --captions /none: cannot read, or empty; expected one caption per line");
}

TEST_F(BenchTokenizer, FindsTheShippedVocabularyFromAnyWorkingFolder) {
  write("captions.txt", "a cat\n");
  const Answer answer = answer_of_shell("cd " + folder_.string() + " && " TESSERA_BINARY_DIR
                                        "/bin/tessera-bench tokenizer --repeats 1 --captions captions.txt");
  EXPECT_EQ(answer.code, 0) << answer.text;
}

}  // namespace
}  // namespace tessera
