// Tests the source that reads rows of Parquet and Arrow files. tests/data/parquet/make.py wrote the files.

#include <filesystem>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"
#include "src/data/packing/inspect.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/tables.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/contains.h"
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using Captions = std::vector<std::string>;

std::string table_path(const std::string& name) {
  return std::string(TESSERA_TEST_DATA) + "/parquet/" + name;
}

ParquetSettings rows_in(const std::string& name) {
  return PathList{{table_path(name)}};
}

class Parquet : public FolderTest {
 protected:
  void SetUp() override {
    if (!can_read_columns()) GTEST_SKIP() << "built without Arrow";
  }
};

Loader rows_loader(const std::shared_ptr<const Source>& source, std::int64_t threads) {
  const LoaderSettings settings = loader_settings(concat("{batch_size: 3, threads: ", threads, ", max_bad_share: 0.5}"));
  return {source, std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, {}, 5};
}

std::string row_error(const IndexedSource& source, std::int64_t index) {
  return keyed_error_of([&] { source.get(index); });
}

TEST_F(Parquet, RowsHaveImagesCaptionsLabelsAndOtherColumns) {
  ParquetSettings settings = rows_in("plain-{0,1}.parquet");
  settings.caption_keys = {"caption", "texts", "meta.boxes.phrase"};
  settings.text_fields = {"texts", "meta.source.name"};
  settings.summary_keys = {"language"};
  const auto source = make_parquet(settings);
  EXPECT_EQ(source->size(), 40);
  EXPECT_EQ(source->describe(), concat("parquet ", table_path("plain-0.parquet"), " and 1 more files, 40 samples"));
  EXPECT_EQ(source->name_of(25), concat("row 1 of ", table_path("plain-1.parquet")));
  for (const std::int64_t i : {0, 7, 8, 23, 24, 39}) {
    const Sample sample = source->get(i);
    const std::string n = std::to_string(i);
    EXPECT_EQ(sample.key, std::string(7 - n.size(), '0') + n);
    EXPECT_EQ(sample.captions, (Captions{"picture " + n, "again " + n, "and again " + n, "thing " + n}));
    EXPECT_EQ(source->captions(i), sample.captions);
    EXPECT_EQ(sample.label, i % 3);
    EXPECT_EQ(sample.summary, i % 2 == 1 ? "de" : "en");
    ASSERT_EQ(sample.texts.size(), 2U);
    EXPECT_TRUE(sample.texts[0].is_list);
    EXPECT_EQ(sample.texts[1].texts, Captions{i % 4 == 0 ? "book" : "web"});
    EXPECT_TRUE(sample.encoded.starts_with("\x89PNG"));
    const nlohmann::json fields = nlohmann::json::parse(sample.fields);
    EXPECT_EQ(fields["width"], 100 + i);
    EXPECT_EQ(fields["similarity"].is_null(), i % 10 == 9);
    EXPECT_EQ(fields["meta"]["boxes"][0]["box"][3], 3 + i % 2);
    EXPECT_FALSE(fields.contains("jpg") || fields.contains("embedding"));
  }
  settings.side_fields = {{"embedding", "meta.source"}};
  const nlohmann::json chosen = nlohmann::json::parse(make_parquet(settings)->get(3).fields);
  EXPECT_EQ(chosen, (nlohmann::json{{"embedding", {0.5, 3.0}}, {"meta.source", {{"name", "web"}}}}));
}

TEST_F(Parquet, AStructureWithBytesIsNotKeptAsASideField) {
  write("picture 0", "an image");
  ParquetSettings settings = rows_in("features.parquet");
  settings.image_keys = {"text"};
  settings.root = path("");
  const Sample sample = make_parquet(settings)->get(0);
  EXPECT_EQ(sample.encoded, "an image");
  EXPECT_EQ(sample.fields, R"({"label":0})") << "the column image holds {bytes, path}";
}

TEST_F(Parquet, HuggingFaceTablesAndSavedFoldersHoldTheSameSamples) {
  const auto rows = make_parquet(rows_in("features.parquet")), saved = make_parquet(rows_in("saved"));
  EXPECT_EQ(rows->class_names(), (Captions{"cat", "dog", "bird"}));
  EXPECT_EQ(saved->class_names(), rows->class_names());
  ASSERT_EQ(rows->size(), 12);
  ASSERT_EQ(saved->size(), 12);
  const auto plain = make_parquet(rows_in("plain-0.parquet"));
  for (std::int64_t i = 0; i < 12; ++i) {
    const Sample one = rows->get(i), other = saved->get(i);
    EXPECT_EQ(one.encoded, plain->get(i).encoded);
    EXPECT_EQ(one.encoded, other.encoded);
    EXPECT_EQ(one.captions, other.captions);
    EXPECT_EQ(one.label, i % 3);
    EXPECT_EQ(other.label, i % 3);
    EXPECT_EQ(one.key, concat("features.parquet:", i));
  }
  EXPECT_EQ(error_of([] { make_parquet(rows_in("splits")); }),
            concat(table_path("splits"),
                   ": holds the splits train and test: name one of them, as in path: ", table_path("splits/train")));
  EXPECT_EQ(make_parquet(rows_in("splits/test"))->size(), 2);
}

TEST_F(Parquet, ReadsTheColumnsOfAWebDataset) {
  const auto source = make_parquet(rows_in("webdataset.parquet"));
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->get(1).key, "shard/1");
  EXPECT_EQ(source->get(0).captions, Captions{"from json"});
  EXPECT_EQ(source->get(1).captions, (Captions{"picture 1", "from json"}));
  EXPECT_EQ(source->get(2).captions, Captions{"picture 2"}) << "txt and json hold the same caption";
  EXPECT_EQ(source->captions(2), source->get(2).captions);
  EXPECT_EQ(source->get(2).label, 2);
}

TEST_F(Parquet, CandidatesOfWinogavilAreSamples) {
  const auto source = indexed(
      sources().make({"winogavil", config::parse_yaml("path: '" + table_path("winogavil-{0,1}.parquet") + "'", "source.yaml")}, "source"));
  ASSERT_EQ(source->size(), 5 + 3 + 4 + 2);
  EXPECT_EQ(source->describe(), concat("winogavil ", table_path("winogavil-0.parquet"), " and 1 more files, 4 instances, 14 candidates"));
  const Sample sample = source->get(6);  // the second candidate of the second instance
  EXPECT_EQ(sample.key, "cue 01/1/name 1");
  EXPECT_EQ(sample.fields, R"({"associated":true,"candidate":"name 1","candidates":3,"cue":"cue 01","instance":1})");
  const auto plain = make_parquet(rows_in("plain-0.parquet"));
  EXPECT_EQ(sample.encoded, plain->get(2).encoded);
  EXPECT_EQ(source->get(12).encoded, make_parquet(rows_in("plain-0.parquet"))->get(10).encoded) << "of the next file";
  EXPECT_EQ(source->get(0).encoded, plain->get(0).encoded) << "in any order";
  EXPECT_TRUE(contains(source->get(0).fields, R"("associated":false)"));
  EXPECT_EQ(row_error(*source, 13), concat("no_image cue 10/3/name 1: ", table_path("winogavil-1.parquet"), ": row 0: candidate name 1 has no image bytes"));
  const std::string error = error_of([] {
    sources().make({"winogavil", config::parse_yaml("path: '" + table_path("plain-0.parquet") + "'", "source.yaml")},
                   "source");
  });
  EXPECT_TRUE(error.starts_with(table_path("plain-0.parquet") + ": has no column cue; its columns are ")) << error;
}

/// A data set as the Hub publishes it. plain-0.parquet has rows 0 to 23, plain-1.parquet rows 24 to 39, and neither names its classes.
class PublishedFolder : public Parquet {
 protected:
  void put(const std::string& name, int part = 0) const { write(name, io::read_file(table_path(concat("plain-", part, ".parquet")))); }
  std::shared_ptr<IndexedSource> open(const std::string& configuration = "", const std::string& split = "",
                                      const std::string& folder = "") {
    ParquetSettings settings = PathList{{path(folder)}};
    settings.configuration = configuration;
    settings.split = split;
    return make_parquet(settings);
  }
  std::string error(const std::string& configuration = "", const std::string& split = "") {
    return error_of([&] { open(configuration, split); });
  }
  const std::string head_ =
      "---\r\nlicense: mit\nconfigs:\n- config_name: photos\n  data_files:\n  - split: train\n    path: photos/train-*\n"
      "  - split: dev\n    path: [photos/dev-*, more/**]\n- config_name: sketches\n  data_files: sketches/*.parquet\n";
};

TEST_F(PublishedFolder, TheHeaderListsConfigurationsSplitsAndClasses) {
  for (const char* name : {"photos/train-0.parquet", "photos/train-1.parquet", "more/a/b.parquet"}) put(name, 1);
  for (const char* name : {"photos/dev-0.parquet", "sketches/0.parquet"}) put(name);
  write("photos/train-notes.txt", "");
  write("README.md", head_ +
                         "dataset_info:\n- config_name: photos\n  features:\n  - name: label\n    dtype:\n      class_label:\n"
                         "        names:\n          '1': no\n          '0': Café\n          '2': 7\n"
                         "- config_name: sketches\n  features: [{name: label, dtype: {class_label: {names: [a, b, c, d]}}}]\n"
                         "---\n# Text\n---\n");
  const auto train = open("photos");
  EXPECT_EQ(train->size(), 32) << "train is the usual split";
  EXPECT_EQ(train->name_of(31), "row 15 of " + path("photos/train-1.parquet"));
  EXPECT_EQ(train->class_names(), (Captions{"Café", "no", "7"}));
  EXPECT_EQ(open("photos", "dev")->size(), 24 + 16);
  const auto sketches = open("sketches");
  EXPECT_EQ(sketches->size(), 24) << "files without a split are train";
  EXPECT_EQ(sketches->class_names(), (Captions{"a", "b", "c", "d"}));
  EXPECT_EQ(make_parquet(PathList{{path("sketches/0.parquet")}})->class_names(), Captions()) << "the configuration is not known";
  EXPECT_EQ(error(), path("") + ": holds the configurations photos and sketches: choose one of them with the source's setting, as in "
                                "configuration: photos");
  EXPECT_EQ(error("paintings"), path("") + ": has no configuration paintings; its configurations are photos and sketches");
  EXPECT_EQ(error("photos", "test"),
            path("") + ": the configuration photos has no split test; its splits are train and dev (setting `split`)");
  std::filesystem::remove_all(path("sketches"));
  EXPECT_EQ(error("sketches"), path("README.md") + ": configuration sketches: no Parquet file matches sketches/*.parquet, the files of the "
                                                    "split train");
  ParquetSettings file = PathList{{path("photos/dev-0.parquet")}};
  file.split = "train";
  EXPECT_EQ(error_of([&] { make_parquet(file); }), path("photos/dev-0.parquet") + ": `configuration` and `split` choose files of a folder: "
                                                                                  "name the folder, or leave these settings out");
}

TEST_F(PublishedFolder, TheDefaultConfigurationIsMarkedOrNamed) {
  put("photos/train-0.parquet", 1);
  put("sketches/0.parquet");
  write("README.md", head_ + "  default: true\n---\n");
  EXPECT_EQ(open()->size(), 24);
  write("README.md", head_ + "- {config_name: default, data_dir: photos}\n---\n");
  EXPECT_EQ(open()->size(), 16);
  EXPECT_EQ(open("", "train")->size(), 16);
  write("README.md", "---\nconfigs: [{config_name: only, data_files: [{split: test, path: sketches/0.parquet}]}]\n---\n");
  EXPECT_EQ(open()->size(), 24) << "the only split of the only configuration";
}

TEST_F(PublishedFolder, WithoutAHeaderFoldersAndFilesHaveTheUsualNames) {
  write("README.md", "---\na: [\n---\n");
  for (const char* name : {"a/train-0.parquet", "b/data/train-0.parquet", "c/test/0000.parquet", ".cache/d/train-0.parquet"}) put(name);
  for (const char* name : {"a/train_more-0.parquet", "a/test.parquet", "c/train/0000.parquet", "c/train/0001.parquet"}) put(name, 1);
  EXPECT_EQ(open("a")->size(), 24);
  EXPECT_EQ(open("a", "test")->size(), 16);
  EXPECT_EQ(open("b")->size(), 24);
  EXPECT_EQ(open("c")->size(), 32);
  EXPECT_EQ(open("c", "test")->size(), 24);
  EXPECT_EQ(open("", "", "b")->size(), 24) << "a folder without files of its own";
  EXPECT_EQ(open("", "", "a")->size(), 24 + 16 + 16) << "all files of a folder";
  EXPECT_EQ(error(),
            path("") + ": holds the configurations a, b and c: choose one of them with the source's setting, as in configuration: a");
  EXPECT_EQ(error("d"), path("") + ": has no Parquet files of the configuration d; its folders are a, b and c");
  EXPECT_EQ(error("a", "dev"), path("") + ": has no Parquet files of the configuration a and the split dev; its folders are a, b and c");
  for (const char* name : {"a", "b"}) std::filesystem::remove_all(path(name));
  EXPECT_EQ(open("", "test")->size(), 24) << "the only configuration";
  std::filesystem::remove_all(path("c"));
  EXPECT_EQ(error("", "test"), path("") + ": holds no .parquet files of the split test");
}

TEST_F(Parquet, FileNamesAreResolvedNextToTheTable) {
  const auto source = make_parquet(rows_in("names.parquet"));
  EXPECT_EQ(source->get(1).encoded, io::read_file(table_path("pictures/1.png")));
  EXPECT_TRUE(row_error(*source, 2).starts_with("no_image names.parquet:2: ")) << row_error(*source, 2);
  EXPECT_EQ(source->get(3).no_image, "sample names.parquet:3 has no image: its column image is null");
  ParquetSettings settings = rows_in("names.parquet");
  settings.root = table_path("saved");
  EXPECT_TRUE(row_error(*make_parquet(settings), 1).starts_with("no_image"));
}

TEST_F(Parquet, ADamagedRowGroupIsCountedAndSkipped) {
  const auto source = make_parquet(rows_in("damaged.parquet"));
  EXPECT_EQ(source->size(), 40);
  for (std::int64_t i = 0; i < 40; ++i) {
    const std::string expected = concat("bad_row_group damaged.parquet:", i, ": ", table_path("damaged.parquet"),
                                        ": row group 2 cannot be read: ");
    if (i / 8 == 2)
      EXPECT_TRUE(row_error(*source, i).starts_with(expected)) << row_error(*source, i);
    else
      EXPECT_EQ(row_error(*source, i), "no error") << i;
  }
  Loader loader = rows_loader(source, 2);
  std::set<std::string> keys;
  for (int i = 0; i < 10; ++i)
    for (const std::string& key : loader.next().keys) keys.insert(key);
  EXPECT_EQ(keys.size(), 30U) << "32 rows are good, and a batch has 3";
  for (int i = 0; i < 5; ++i) loader.next();
  EXPECT_GE(loader.statistics().skipped.at("bad_row_group"), 8);
  const Inspection found = inspect(*source, {}, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(nlohmann::json::parse(found.report)["bad"], (nlohmann::json{{"bad_row_group", 8}}));
}

TEST_F(Parquet, AFewBytesThatDecodeToGigabytesAreRefused) {
  const auto source = make_parquet(rows_in("bomb.parquet"));
  EXPECT_EQ(source->size(), 1'000'000);
  EXPECT_TRUE(row_error(*source, 5)
                  .starts_with(concat("bad_row_group bomb.parquet:5: ", table_path("bomb.parquet"),
                                      ": row group 0 cannot be read: ")))
      << row_error(*source, 5);
  EXPECT_EQ(source->captions(999'999), Captions{"a caption"}) << "the other column is small";
}

TEST_F(Parquet, WrongFilesAndColumnsAreReportedInOneLine) {
  ParquetSettings settings = rows_in("plain-0.parquet");
  settings.image_keys = {"picture", "meta.picture"};
  EXPECT_EQ(
      error_of([&] { make_parquet(settings); }),
      concat(table_path("plain-0.parquet"),
             ": no column has images: its columns are key, caption, texts, meta, label, width, similarity, "
             "language, uid, embedding and jpg, the image is looked for in picture and meta.picture (image_keys)"));
  settings.image_keys = {"texts"};
  EXPECT_EQ(error_of([&] { make_parquet(settings); }),
            concat(table_path("plain-0.parquet"),
                   ": column texts (image_keys) is of type list<element: string>; expected an image's bytes, "
                   "{bytes, path} or a file name"));
  settings = rows_in("plain-0.parquet");
  settings.text_fields = {"meta.nothing"};
  EXPECT_TRUE(error_of([&] {
                make_parquet(settings);
              }).starts_with(concat(table_path("plain-0.parquet"), ": has no column meta.nothing (text_fields)")));
  settings = rows_in("plain-0.parquet");
  settings.path.items.push_back(table_path("features.parquet"));
  EXPECT_EQ(error_of([&] { make_parquet(settings); }),
            concat(table_path("features.parquet"), ": has no column jpg, unlike ", table_path("plain-0.parquet")));
  EXPECT_TRUE(error_of([&] {
                make_parquet(rows_in("make.py"));
              }).starts_with(concat(table_path("make.py"), ": cannot be read as Parquet or Arrow: ")));
  EXPECT_TRUE(error_of([&] { make_parquet(rows_in("none.parquet")); }).ends_with("none.parquet: no such file"));
  EXPECT_TRUE(error_of([&] { make_parquet({}); }).starts_with("path: no file is given"));
  const std::string whole = io::read_file(table_path("plain-0.parquet"));
  for (const std::size_t size : {3UL, 10UL, whole.size() / 2, whole.size() - 1}) {
    io::write_file(path("cut.parquet"), whole.substr(0, size));
    ParquetSettings cut;
    cut.path = {{path("cut.parquet")}};
    const std::string error = error_of([&] { make_parquet(cut); });
    EXPECT_TRUE(error.starts_with(path("cut.parquet") + ": cannot be read as Parquet or Arrow: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST_F(Parquet, ATruncatedArrowStreamReturnsItsCompleteBatches) {
  const std::string whole = io::read_file(table_path("saved/data-00000-of-00002.arrow"));
  io::write_file(path("cut.arrow"), whole.substr(0, whole.size() - 600));
  ParquetSettings settings;
  settings.path = {{path("cut.arrow")}};
  EXPECT_TRUE(error_of([&] { make_parquet(settings); }).ends_with(": hold no rows"))
      << error_of([&] { make_parquet(settings); });
  io::write_file(path("cut.arrow"), whole.substr(0, whole.size() - 8));  // only the end mark is missing
  EXPECT_EQ(make_parquet(settings)->size(), 6);
}

TEST_F(Parquet, RowGroupsAreTheGroupsOfTheOrder) {
  const auto source = make_parquet(rows_in("plain-*.parquet"));
  EXPECT_EQ(source->group_starts(), (std::vector<std::int64_t>{0, 8, 16, 24, 32, 40}));
  EXPECT_EQ(source->open_groups(), 64);
}

TEST_F(Parquet, ResumesAtTheSameSampleAnywhereWithAnyNumberOfThreads) {
  for (const char* name : {"plain-*.parquet", "damaged.parquet", "saved"}) {
    SCOPED_TRACE(name);
    expect_resumes([&](std::int64_t threads) { return rows_loader(make_parquet(rows_in(name)), threads); }, 30, 3, 10);
  }
}

TEST_F(Parquet, MixesWithOtherSources) {
  Mixture mixture(MixtureMode::concat, {{"rows", make_parquet(rows_in("plain-*.parquet")), 1.0},
                                        {"saved", make_parquet(rows_in("saved")), 1.0}});
  Loader loader = rows_loader(std::shared_ptr<const Source>(std::shared_ptr<const void>(), &mixture), 2);
  std::set<std::string> seen;
  for (int i = 0; i < 17; ++i)
    for (const std::string& key : loader.next().keys) seen.insert(key);
  EXPECT_EQ(seen.size(), 51U);
}

}  // namespace
}  // namespace tessera
