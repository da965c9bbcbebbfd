// Runs tessera-data on realistic data, such as tables with missing images and blank captions.
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/formats/row_filter.h"
#include "src/data/image/encode.h"
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

TEST_F(DataProgram, ReadBeginsAfterTheSamplesThatAResumedRunHasRead) {
  const auto samples = [&](const std::string& more) {
    const auto json = nlohmann::json::parse(data("read --json --image-size 16 --loader batch_size=2 --source shapes --set size=10" + more));
    EXPECT_GT(json.at("first_batch_seconds"), 0);
    return json.at("samples").get<int>();
  };
  EXPECT_EQ(samples(""), 10);
  EXPECT_EQ(samples(" --from-sample 6"), 4);
  EXPECT_EQ(samples(" --from-sample 6 --epochs 2"), 14);
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

TEST_F(DataProgram, ConceptsAreCountedInCaptionsWithoutReadingImages) {
  const std::string table = write("a.csv", "filepath\ttitle\ngood.jpg\ta cat\nmissing.jpg\ta cat, again\ngood.jpg\ta dog and a cat\n"
                                           "empty.jpg\ta red car\ngood.jpg\tnothing known\ngood.jpg\t \n");
  const std::string count = "concepts --source csv --set path=" + table + " --out " + path("counts.tsv") + " --thresholds 1 3 --entries ";
  const std::string expected = path("counts.tsv") +
                               ": 4 of 5 samples contain one of 3 of 4 entries\nleft out: 1 no_caption\n"
                               "threshold 1: 1 entries are above it; an epoch has about 3 samples\n"
                               "threshold 3: 0 entries are above it; an epoch has about 4 samples\n";
  for (const std::string& entries : {write("list.txt", "cat\n dog \n\nzebra\nred car\n"), write("list.json", R"(["cat", "dog", "zebra", "red car"])")}) {
    const std::string text = data(count + entries);
    EXPECT_TRUE(text.ends_with(expected)) << text;
    EXPECT_EQ(io::read_file(path("counts.tsv")), "3\tcat\n1\tdog\n0\tzebra\n1\tred car\n");
  }
  // data.loader.balance reads the file. With threshold 3, an epoch has every sample with an entry, and no other.
  const std::string images =
      write("b.csv", "filepath\ttitle\ngood.jpg\tnothing\ngood.jpg\ta cat\ngood.jpg\tnothing\ngood.jpg\ta dog\ngood.jpg\tnothing\n");
  const std::string read = "read --image-size 16 --source csv --set path=" + images + " --loader batch_size=1";
  EXPECT_NE(data(read).find(", 5 samples: 5 samples in "), std::string::npos);
  const std::string balanced = data(read + " 'balance={counts: " + path("counts.tsv") + ", threshold: 3}'");
  EXPECT_NE(balanced.find(", 5 samples: 2 samples in "), std::string::npos) << balanced;
}

TEST_F(DataProgram, ConceptsNamesTheFileOrOptionThatIsWrong) {
  const std::string table = write("a.csv", "filepath\ttitle\ngood.jpg\ta cat\n");
  const std::string count = "tessera-data concepts --source csv --set path=" + table + " --out " + path("counts.tsv");
  expect_refused(count + " --entries " + write("list.txt", "zebra\n"),
                 "tessera-data concepts: csv " + table + ", 1 samples: no sample contains an entry of " + path("list.txt"));
  expect_refused(count + " --entries " + write("object.json", "{}"),
                 "tessera-data concepts: " + path("object.json") + ": expected a JSON list of texts");
  EXPECT_NE(refusal_of(count).find("--entries is required"), std::string::npos);
  EXPECT_NE(refusal_of(count + " --entries " + path("list.txt") + " --thresholds 0").find("--thresholds"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("counts.tsv")));
}

/// A fixture with six embeddings of width 2. Row b is near row a (cosine 0.8), and d is near c; no other pair has a cosine above 0.6.
class DedupProgram : public DataProgram {
 protected:
  DedupProgram() { write("rows.npy", encode_npy({1, 0, 0.8F, 0.6F, 0, 1, -0.6F, 0.8F, -1, 0, 0, -1}, 6, 2)); }
  std::string dedup(const std::string& more, const std::string& which = "--threshold 0.75 --clusters 1 --keep first ") const {
    return "tessera-data dedup --embeddings " + path("rows.npy") + " " + which + more;
  }
  void write_keys(const std::vector<std::string>& keys) const {
    std::string lines;
    for (const std::string& key : keys) lines += key + "\n";
    write("rows.keys.txt", lines);
  }
  /// Returns 32 hexadecimal digits whose upper half is greater for smaller numbers.
  static std::string id(int number) { return concat("000000000000000", 9 - number, "00000000000000f", number); }
};

TEST_F(DedupProgram, WritesTheKeysToKeepAndWhyOthersAreRemoved) {
  const auto removed = [&] { return io::read_file(path("removed.tsv")); };
  const std::string text = output_of(dedup("--out " + path("kept.txt") + " --removed " + path("removed.tsv")));
  EXPECT_TRUE(text.ends_with(path("kept.txt") + ": 4 of 6 kept; 2 have a cosine of at least 0.75 with another one of their cluster\n")) << text;
  EXPECT_EQ(io::read_file(path("kept.txt")), "0\n2\n4\n5\n") << "rows without keys have their numbers";
  EXPECT_EQ(removed(), "1\t0\t0.8\n3\t2\t0.8\n");
  write_keys({"a", "b", "c", "d", "e", "f"});
  output_of(dedup("--out " + path("kept.txt") + " --removed " + path("removed.tsv")));
  EXPECT_EQ(io::read_file(path("kept.txt")), "a\nc\ne\nf\n");
  EXPECT_EQ(removed(), "b\ta\t0.8\nd\tc\t0.8\n");
  output_of(dedup("--out " + path("kept.txt"), "--threshold 0.81 --clusters 1 "));
  EXPECT_EQ(io::read_file(path("kept.txt")), "a\nb\nc\nd\ne\nf\n");
}

TEST_F(DedupProgram, WritesTheIdsThatFilterIdsReads) {
  // The source has a sample more than the embeddings, because tessera-embed leaves out images that it cannot read.
  std::vector<std::string> keys;
  for (int sample = 0, row = 0; sample < 7; ++sample) {
    const std::string name = concat("pictures/p", sample);
    write(name + ".txt", "a caption");
    write(name + ".jpg", sample == 2 ? "" : io::read_file(path("good.jpg")));
    write(name + ".json", concat("{\"own_id\": \"", id(sample == 2 ? 8 : row), "\"}"));
    if (sample == 2) continue;
    keys.push_back(concat("p", sample, ".jpg"));
    ++row;
  }
  write_keys(keys);
  const std::string source = "--source image_folder --set path=" + path("pictures");
  expect_refused(dedup(source + " --out " + path("kept.npy")),
                 "tessera-data dedup: " + path("rows.npy") + ": row 0, p0.jpg: the sample has no side field uid with a text: name the field with "
                 "--id-field, or let --out end in .txt for a list of keys");
  output_of(dedup(source + " --id-field own_id --out " + path("kept.npy")));
  std::vector<SampleId> sorted;
  for (const int row : {5, 4, 2, 0}) sorted.push_back(*parse_sample_id(id(row)));
  EXPECT_EQ(io::read_file(path("kept.npy")),
            npy_header("<u8", {4, 2}) + std::string(reinterpret_cast<const char*>(sorted.data()), sorted.size() * sizeof(SampleId)));
  const std::string kept = data("inspect " + source + " --set id_field=own_id --set filter_ids=" + path("kept.npy"));
  EXPECT_NE(kept.find(": 2 are not listed; looked at 5 samples: 4 good, 1 bad\n"), std::string::npos) << kept;

  // Keys that are ids themselves need no source.
  for (int row = 0; row < 6; ++row) keys[static_cast<std::size_t>(row)] = id(row);
  write_keys(keys);
  output_of(dedup("--out " + path("same.npy")));
  EXPECT_EQ(io::read_file(path("same.npy")), io::read_file(path("kept.npy")));
}

TEST_F(DedupProgram, NamesTheFileOrOptionThatIsWrong) {
  const auto refused = [&](const std::string& more, const std::string& line) { expect_refused(dedup(more), "tessera-data dedup: " + line); };
  refused("--out " + path("kept.bin"),
          "--out " + path("kept.bin") + ": the ending decides the format: .npy for ids that filter_ids reads, .txt for keys");
  refused("--out " + path("kept.npy"), path("rows.npy") + ": has no keys: write it with tessera-embed, which stores them in the file or in NAME.keys.txt");
  write_keys({"a", "b", "c", "d", "e", "f"});
  refused("--out " + path("kept.npy"), path("rows.npy") + ": row 0, a: its id \"a\" is not 32 hexadecimal digits: name the embedded source with "
                                       "--source and the side field with --id-field, or let --out end in .txt for a list of keys");
  const std::string lines = write("a.jsonl", R"({"image": "good.jpg", "caption": "a"})" "\n");
  refused("--source json_lines --set path=" + lines + " --set images=" + folder_.string() + " --out " + path("kept.npy"),
          path("rows.npy") + ": json_lines " + lines + ", 1 samples does not have the key a of row 0 after those of the rows before it: give the "
                             "source that was embedded");
  const std::string keys = "--out " + path("kept.txt");
  expect_refused(dedup(keys, "--clusters 7 "), "tessera-data dedup: --clusters 7: there are only 6 embeddings");
  EXPECT_NE(refusal_of(dedup(keys, "--nearest 0 ")).find("--nearest"), std::string::npos);
  EXPECT_NE(refusal_of(dedup(keys, "--keep best ")).find("--keep"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("kept.npy")) || std::filesystem::exists(path("kept.txt")));
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
