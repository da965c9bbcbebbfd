#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/data/tokenizers/golden.h"
#include "tests/support/program.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using test::Ids;

Answer answer_to(const std::string& command, const std::string& input) {
  const std::string path = testing::TempDir() + "tokenizer_input";
  io::write_file(path, input);
  const Answer answer = answer_of(command + " < " + path);
  std::filesystem::remove(path);
  return answer;
}

const std::string clip = "tessera-data tokenize --tokenizer clip-bpe --vocab " + test::clip_merges;
const std::string bert = "tessera-data tokenize --tokenizer wordpiece --vocab " + test::wordpiece_vocab;

// Returns the ids of each line that a program printed. Each test sends several lines at once, because a program takes a second to start.
std::vector<Ids> lines_of(const Answer& ran) {
  EXPECT_EQ(ran.code, 0) << ran.text;
  std::vector<Ids> out;
  std::istringstream lines(ran.text);
  for (std::string line; std::getline(lines, line);)
    out.push_back(nlohmann::json::parse(line, nullptr, false).value("ids", Ids{}));
  return out;
}

TEST(TokenizeProgram, AcceptsTextHexBlankLinesAndLoneSurrogates) {
  const auto tokenizer = test::clip_bpe();
  const std::vector<std::string> texts = {
      "a cat", "", "a\uFFFD cat", "", "a \uFFFD b \uFFFD \U0001F600 \\ud83d", "\uFFFD\U0001F600"};
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer->encode(text));
  EXPECT_EQ(lines_of(answer_to(clip, R"({"text": "a cat"}

{"text": ""}
{"utf8_hex": "61fF20636174"}
{"text": "ignored", "utf8_hex": ""}
{"text": "a \ud83d b \ude00 \ud83d\ude00 \\ud83d"}
{"text": "\ud83d\uD83D\uDE00"})")),
            expected);
}

TEST(TokenizeProgram, OptionsSetTheTokenizersSettings) {
  const std::string text = "A caf\u00C3\u00A9 on the corner", line = "{\"text\": \"" + text + "\"}\n";
  const auto ids = [&](const std::string& arguments) { return lines_of(answer_to(arguments, line)).at(0); };
  EXPECT_EQ(ids(clip + " --set cleanup=full --context-length 4"),
            test::clip_bpe("full", 4)->encode("a caf\u00E9 on the corner"));
  EXPECT_EQ(ids(bert + " --context-length 5"), test::wordpiece(5)->encode(text));
  EXPECT_EQ(ids(bert + " --set lower_case=false"), test::wordpiece(76, false)->encode(text));
  EXPECT_EQ(answer_to(clip + " --set lower_case=false", line).code, 2);
}

TEST(BenchTokenizer, PrintsATableAndWritesJson) {
  const std::string folder = testing::TempDir();
  io::write_file(folder + "captions.txt", "a cat\nTwo dogs, caf\u00E9\n");
  const Answer ran =
      answer_of("tessera-bench tokenizer --repeats 1 --threads 2 --captions " + folder + "captions.txt --json " +
                       folder + "bench.json --tokenizers '{name: clip-bpe, merges: " + test::clip_merges +
                       "}' '{name: wordpiece, vocab: " + test::wordpiece_vocab + "}'");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.text.find("2 captions of "), std::string::npos) << ran.text;
  const nlohmann::json measured = nlohmann::json::parse(io::read_file(folder + "bench.json"));
  EXPECT_EQ(measured.at("threads"), 2);
  ASSERT_EQ(measured.at("tokenizers").size(), 2u);
  EXPECT_EQ(measured["tokenizers"][0].at("ids_per_caption"), 5.0);
  EXPECT_GT(measured["tokenizers"][1].at("captions_per_second").get<double>(), 0);
  EXPECT_GE(measured["tokenizers"][1].at("processor_seconds").get<double>(), 0);
  EXPECT_EQ(answer_of("tessera-bench tokenizer --captions /none").text,
            "tessera-bench: --captions /none: cannot read, or empty; expected one caption per line\n");
  for (const char* name : {"captions.txt", "bench.json"}) std::filesystem::remove(folder + name);
}

}  // namespace
}  // namespace tessera
