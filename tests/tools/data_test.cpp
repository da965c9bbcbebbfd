// Runs tessera-data on realistic data, such as tables with missing images and blank captions.
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr const char* kImage = TESSERA_SOURCE_DIR "/tests/data/images/small_420.jpg";

/// A fixture whose folder holds a valid image, good.jpg, and an empty file, empty.jpg. Tests add tables.
class DataProgram : public FolderTest {
 protected:
  DataProgram() {
    std::filesystem::copy_file(kImage, folder_ / "good.jpg");
    write("empty.jpg", "");
  }
  static std::string data(const std::string& arguments) { return output_of("tessera-data " + arguments); }
};

std::string caption(int number) {
  static const std::vector<std::string> words = {"red", "green", "blue", "circle", "square", "above", "below", "left"};
  return concat("a ", words[static_cast<std::size_t>(number) % 8], " thing by the ",
                words[static_cast<std::size_t>(number / 8) % 8]);
}

TEST_F(DataProgram, AVocabularyIsTrainedAlsoOnCaptionsWithoutTheirImages) {
  std::string table = "filepath\ttitle\n", lines;
  for (int i = 0; i < 64; ++i) {
    const char* name = i == 0 ? "good.jpg" : i == 1 ? "empty.jpg" : "missing.jpg";
    table += concat(name, "\t", i % 16 == 15 ? " " : caption(i), "\n");
    if (i % 16 != 15) lines += caption(i) + "\n";
  }
  const std::string by_table = "train-sentencepiece --vocab-size 35 --source csv --set path=" + write("a.csv", table);
  const std::string trained = data(by_table + " --out " + path("a.model"));
  EXPECT_NE(trained.find("64 samples: 4 of 64 samples have no caption that can be read (4 no_caption)"), std::string::npos)
      << trained;
  const std::string by_lines = "train-sentencepiece --vocab-size 35 --input " + write("a.txt", lines);
  data(by_lines + " --out " + path("b.model"));
  EXPECT_EQ(io::read_file(path("a.model")), io::read_file(path("b.model"))) << "the same captions";
}

TEST_F(DataProgram, TrainingAVocabularyOnBlankCaptionsIsRefused) {
  const std::string table = write("a.csv", "filepath\ttitle\ngood.jpg\t \ngood.jpg\t\n");
  expect_refused("tessera-data train-sentencepiece --vocab-size 35 --source csv --set path=" + table + " --out " + path("m"),
                 "tessera-data train-sentencepiece: csv " + table +
                     ", 2 samples: 2 of 2 samples have no caption that can be read (2 no_caption). In the list, caption is "
                     "looked for in title (caption_keys)");
}

TEST_F(DataProgram, ACharacterCoverageBelowSentencePiecesLeastIsRefused) {
  expect_refused("tessera-data train-sentencepiece --source shapes --vocab-size 35 --character-coverage 0.95 --out " + path("m"),
                 "tessera-data: --character-coverage: Value 0.95 not in range 0.980000 to 1.000000 (see --help)");
}

TEST_F(DataProgram, InspectCountsBadSamplesAndMissingCaptions) {
  const std::string table =
      write("a.csv", "filepath\ttitle\ngood.jpg\ta cat\ngood.jpg\t \nempty.jpg\ta dog\nno.jpg\tx\ngood.jpg\tb\n");
  const std::string text = data("inspect --source csv --set path=" + table);
  EXPECT_TRUE(text.starts_with("csv " + table + ", 5 samples; looked at 5 samples: 3 good, 2 bad\n"
                               "1 images, 2 captions: samples that name the same image file are one image in evaluations\n"
                               "1 sample without a caption: training on texts skips it, with the bad ones 3 of 5 (60.0 %)\n"))
      << text;
}

TEST_F(DataProgram, InspectCountsCaptionsWithLineBreaks) {
  const std::string table = write("a.csv", "filepath,title\ngood.jpg,\"one\ntwo\"\ngood.jpg,three\n");
  const std::string text = data("inspect --source csv --set path=" + table);
  EXPECT_NE(text.find("\ncaptions with line breaks: 1 of 2; each is one text\n"), std::string::npos) << text;
}

TEST_F(DataProgram, InspectCountsTurnedAnd16BitImages) {
  const std::string files = TESSERA_SOURCE_DIR "/tests/fuzz/corpus/image/";
  const std::string text = data("inspect --source csv --set root=" + files + " --set path=" +
                                write("a.csv", "filepath\ttitle\nexif.jpg\ta\nrgb.jpg\tb\n16.png\tc\ngrey.png\td\n"));
  EXPECT_NE(text.find("\nEXIF orientation: 1 of the images is turned when shown; model.preprocessing.exif_rotation: true turns them, too\n"
                      "16-bit gray images: 1, with values up to 61,007;"),
            std::string::npos)
      << text;
}

TEST_F(DataProgram, PackAndReadNameTheOptionThatAllowsMoreBadSamples) {
  const std::string table = write("a.csv", "filepath\ttitle\ngood.jpg\ta cat\nempty.jpg\ta dog\ngood.jpg\tx\n");
  const std::string packed = refusal_of("tessera-data pack --source csv --set path=" + table + " --out " + path("shards"));
  EXPECT_NE(packed.find("(--max-bad-share 0.5 allows more, tessera-data inspect counts all of them)"), std::string::npos)
      << packed;
  std::string long_table = "filepath\ttitle\n";
  for (int i = 0; i < 120; ++i) long_table += concat(i % 4 == 0 ? "empty.jpg" : "good.jpg", "\ta cat\n");
  const std::string read = refusal_of(
      "tessera-data read --image-size 16 --loader batch_size=2 shuffle=false --source csv --set path=" + write("b.csv", long_table));
  EXPECT_NE(read.find("(--loader max_bad_share=0.4 allows more, "), std::string::npos) << read;
}

TEST_F(DataProgram, PackingAgainReportsThatTheShardsAreComplete) {
  const std::string pack = "pack --source shapes --set size=3 --out " + path("shards");
  EXPECT_EQ(data(pack).find("already complete"), std::string::npos);
  const std::string again = data(pack);
  EXPECT_TRUE(again.starts_with(path("shards/shard.json") + ": already complete, nothing was written\n")) << again;
}

TEST_F(DataProgram, TokenizeTakesTheSameVocabularyOptionsAsInspect) {
  const std::string vocabulary = write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\n");
  const std::string line =
      "echo '{\"text\": \"a red\"}' | " TESSERA_BINARY_DIR "/bin/tessera-data tokenize --tokenizer wordpiece ";
  for (const std::string option : {"--vocab ", "--set vocab=", "--tokenizer-set vocab="})
    EXPECT_EQ(answer_of_shell(line + option + vocabulary).text, "{\"ids\": [2, 5, 6, 3]}\n") << option;
  EXPECT_EQ(answer_of_shell(line).code, 2);
}

TEST_F(DataProgram, HardNegativesAreWrittenInTheFormatOfTheSourceJsonLines) {
  const std::string lines = write(
      "a.jsonl",
      R"({"image": "good.jpg", "caption": ["A red car and a blue bus", "cars"], "negatives": ["given"], "regions": )"
      R"([{"box": [1, 2, 30, 40], "phrase": "a red car", "negatives": ["a tram"]}]})"
      "\n"
      R"({"image": "good.jpg", "caption": "nothing known"})"
      "\n"
      R"({"image": "empty.jpg", "caption": "a dog"})"
      "\n");
  const std::string make = "hard-negatives --source json_lines --set path=" + lines + " --set images=" + folder_.string();
  const std::string text = data(make + " --seed 3 --out " + path("b.jsonl"));
  ASSERT_NE(text.find(path("b.jsonl")), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.find(path("b.jsonl"))),
            path("b.jsonl") +
                ": 2 samples, 4 hard negatives (1 replace_att, 1 replace_obj, 1 swap_att, 1 swap_obj); no rule applies to "
                "1 of the samples\nskipped: 1 empty_image\n");
  const std::string written = io::read_file(path("b.jsonl"));
  EXPECT_NE(written.find(R"({"kind":"","caption":"given"},{"kind":"swap_att","caption":"A blue car and a red bus"})"),
            std::string::npos)
      << written;
  EXPECT_NE(written.find(R"("regions":[{"box":[1,2,30,40],"phrase":"a red car","negatives":[)"), std::string::npos) << written;
  EXPECT_NE(written.find(R"(,"a tram"]}])"), std::string::npos) << written;
  data(make + " --seed 3 --out " + path("c.jsonl"));
  EXPECT_EQ(io::read_file(path("c.jsonl")), written);
  data(make + " --seed 4 --each 3 --out " + path("d.jsonl"));
  EXPECT_NE(io::read_file(path("d.jsonl")), written);
  const std::string read = data("inspect --source json_lines --set path=" + path("b.jsonl") + " --set images=" + folder_.string());
  EXPECT_NE(read.find("hard negatives"), std::string::npos) << read;
}

TEST_F(DataProgram, TheSheetReportsCharactersThatItCannotDraw) {
  const std::string sheet = " --sheet " + path("sheet.png");
  const std::string german = write("a.csv", "filepath\ttitle\ngood.jpg\tStra\u00dfe\n");
  const std::string other = write("b.csv", "filepath\ttitle\ngood.jpg\t\u732b\n");
  EXPECT_EQ(data("inspect --source csv --set path=" + german + sheet).find("ASCII"), std::string::npos);
  EXPECT_NE(data("inspect --source csv --set path=" + other + sheet).find("font has only ASCII: 1 character is drawn as"),
            std::string::npos);
}

TEST_F(DataProgram, AnUnknownLogLevelIsIgnored) {
  const std::string inspect = " " TESSERA_BINARY_DIR "/bin/tessera-data inspect --source csv --set path=" +
                              write("a.csv", "filepath\ttitle\ngood.jpg\t\u732b\n") + " --sheet " + path("sheet.png");
  for (const auto& [level, warns] : {std::pair("DEBUG", true), std::pair("error", false)}) {
    const Answer answer = answer_of_shell(concat("TESSERA_LOG=", level, inspect));
    EXPECT_EQ(answer.text.find("font has only ASCII") != std::string::npos, warns) << level << "\n" << answer.text;
  }
}

TEST_F(DataProgram, AProgramFoundThroughPathIgnoresLibrariesOfTheWorkingFolder) {
  write("lib/libtessera_arrow.so", "not a library");
  const Answer answer = answer_of_shell("cd " + folder_.string() + " && PATH=" TESSERA_BINARY_DIR "/bin:$PATH tessera-data inspect "
                                        "--source parquet --set path=" TESSERA_SOURCE_DIR "/tests/data/parquet/plain-0.parquet");
  EXPECT_EQ(answer.text.find("cannot be loaded"), std::string::npos) << answer.text;
}

}  // namespace
}  // namespace tessera
