// Tests conditions on side fields, lists of ids, and sources that filter their samples by them.

#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"
#include "src/data/formats/row_filter.h"
#include "src/io/tar.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/config/node.h>
#include <tessera/data/loading/loader.h>
#include <tessera/data/stream.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using Json = nlohmann::json;

Truth truth_for(const std::string& text, const Json& object) {
  const FieldExpression expression(text);
  return expression.of([&](std::size_t field) { return json_member(object, expression.fields()[field]); });
}

const Json kSideFields = {{"width", 224},
                          {"similarity", 0.3},
                          {"language", "en"},
                          {"nsfw", false},
                          {"clip score", 0.25},
                          {"score", "0.7"},
                          {"missing", nullptr},
                          {"broken", std::numeric_limits<double>::quiet_NaN()},
                          {"list", {1, 2}},
                          {"large", 9007199254740993},
                          {"meta", {{"source", {{"name", "web"}}}}},
                          {"a.b", 5}};

TEST(FieldExpression, IsTrueIfItsConditionHolds) {
  for (const char* text : {"width >= 224",
                           "width == 224.0",
                           "width <> 225",
                           "width != 225",
                           "width = 224",
                           "224 <= width",
                           "200 < width <= 224 < 300",
                           "similarity > 0.28 and language == 'en'",
                           "similarity > 0.5 or language == \"en\"",
                           "not similarity > 0.5",
                           "NOT (width < 100 OR language IN ('de', 'fr'))",
                           "language in ('de', 'en')",
                           "language not in ('de')",
                           "width in (1, 224)",
                           "missing is null",
                           "nothing is null",
                           "broken is null",
                           "width is not null",
                           "`clip score` < 1",
                           "meta.source.name == 'web'",
                           "nsfw == false",
                           "not nsfw",
                           "true",
                           "width",
                           "score > 0.65",
                           "score == 0.7",
                           "large == 9007199254740993",
                           "large != 9007199254740992",
                           "a.b == 5",
                           "language >= 'e' and language < 'f'",
                           "width > -1",
                           "similarity < 3e-1 or similarity >= 0.3",
                           "'it''s' == 'it''s'",
                           "missing > 5 or width > 5",
                           "not (missing > 5 and width < 5)",
                           "null is null"})
    EXPECT_EQ(truth_for(text, kSideFields), Truth::yes) << text;
}

TEST(FieldExpression, IsFalseOrUnknownOtherwise) {
  for (const char* text :
       {"width > 224", "language == 'EN'", "similarity > 0.28 and language == 'de'", "nsfw", "width in (1, 2)",
        "width is null", "missing > 5 and width < 5", "not (missing > 5 or width > 5)", "0"})
    EXPECT_EQ(truth_for(text, kSideFields), Truth::no) << text;
  for (const char* text : {"missing > 5", "not missing > 5", "nothing == 'x'", "missing == null", "missing in (1, 2)",
                           "missing not in (1)", "broken < 5", "not broken < 5", "list == 1", "language > 5",
                           "width == 'wide'", "nsfw == 1", "missing > 5 and width > 5", "missing",
                           "meta.source.other == 1", "width == width and missing == missing"})
    EXPECT_EQ(truth_for(text, kSideFields), Truth::unknown) << text;
}

TEST(FieldExpression, NamesTheFieldThatMakesItUnknown) {
  for (const auto& [text, field] :
       std::vector<std::pair<std::string, std::string>>{{"width > 5 and language > 5", "language"},
                                                        {"missing is null and language > 5", "language"},
                                                        {"language > 5 and (missing > 5 or width > 5)", "language"},
                                                        {"width < missing", "missing"},
                                                        {"5 < language", "language"},
                                                        {"width > 5 and missing in (1, 2)", "missing"},
                                                        {"width > 5 and not list", "list"}}) {
    const FieldExpression expression(text);
    std::size_t unknown = 99;
    EXPECT_EQ(expression.of([&](std::size_t each) { return json_member(kSideFields, expression.fields()[each]); }, &unknown),
              Truth::unknown)
        << text;
    EXPECT_EQ(expression.fields().at(unknown), field) << text;
  }
}

TEST(FieldExpression, ListsEachFieldOnce) {
  EXPECT_EQ(FieldExpression("width > 1 and (`a b` < 2 or width < 5) and x.y is null").fields(),
            (std::vector<std::string>{"width", "a b", "x.y"}));
}

TEST(FieldExpression, SyntaxErrorsNameTheirPosition) {
  const auto error = [](const std::string& text) { return error_of([&] { FieldExpression{text}; }); };
  EXPECT_EQ(error("width >="),
            "filter \"width >=\": at character 9: expected a field, a number or a text, got the end");
  EXPECT_EQ(error("width > 3 language == 'en'"),
            "filter \"width > 3 language == 'en'\": at character 11: expected and, or, or the end, got \"language\"");
  EXPECT_EQ(error("(width > 3"), "filter \"(width > 3\": at character 11: expected \")\", got the end");
  EXPECT_EQ(error("language == 'en"),
            "filter \"language == 'en\": at character 13: the quote that opens here is never closed");
  EXPECT_EQ(error("width & 3"), "filter \"width & 3\": at character 7: \"&\" is not understood");
  EXPECT_EQ(error("width > 3px"), "filter \"width > 3px\": at character 9: \"3px\" is not a number");
  EXPECT_EQ(error("width in (height)"),
            "filter \"width in (height)\": at character 17: expected numbers and texts in the list, got \")\"");
  EXPECT_EQ(error("width is 3"), "filter \"width is 3\": at character 10: expected null, got \"3\"");
  EXPECT_EQ(error("and"), "filter \"and\": at character 1: expected a field, a number or a text, got \"and\"");
  EXPECT_EQ(error(""), "filter \"\": at character 1: expected a field, a number or a text, got the end");
  EXPECT_NE(error(std::string(200, '(') + "width" + std::string(200, ')')).find("nested too deep"), std::string::npos);
  EXPECT_NE(error([] {
              std::string nots;
              for (int i = 0; i < 100'000; ++i) nots += "not ";
              return nots + "x";
            }())
                .find("nested too deep"),
            std::string::npos);
}

std::string table_file(const std::string& name) {
  return std::string(TESSERA_TEST_DATA) + "/parquet/" + name;
}

std::string uid_text(int i) {
  char text[40];
  std::snprintf(text, sizeof(text), "%07x%025x", i, i);
  return text;
}

TEST(IdList, ReadsSortedAndUnsortedIds) {
  for (const char* name : {"ids.npy", "ids_unsorted.npy", "ids_table.npy"}) {
    const IdList ids(table_file(name));
    EXPECT_EQ(ids.size(), 8);
    for (int i = 0; i < 45; ++i)
      EXPECT_EQ(ids.contains(*parse_sample_id(uid_text(i))), i % 5 == 0 && i < 40) << name << " " << i;
  }
  EXPECT_EQ(parse_sample_id("00000000000000010000000000000aF2"), (SampleId{1, 0xAF2}));
  EXPECT_EQ(parse_sample_id("1"), std::nullopt);
  EXPECT_EQ(parse_sample_id(std::string(32, 'g')), std::nullopt);
}

class FilterTest : public FolderTest {
 protected:
  std::shared_ptr<Source> make(const std::string& settings) const {
    const config::Node node = config::parse_yaml(settings, "test");
    return sources().make(config::Value<config::ModuleSettings>::read(node, "data.train", {}), "data.train");
  }

  // Writes samples `begin` to `end` - 1. The json member of sample i holds a uid, the width 100 + i, and the similarity i / 100, which
  // every tenth sample lacks.
  void write_shard(const std::string& name, int begin, int end) const {
    io::TarWriter tar(path(name));
    for (int i = begin; i < end; ++i) {
      const std::string key = "00000000" + std::to_string(i);
      tar.add(key + ".png", test::noise_png(i));
      tar.add(key + ".txt", "picture " + std::to_string(i));
      Json json = {{"uid", uid_text(i)}, {"width", 100 + i}};
      if (i % 10 != 9) json["similarity"] = i / 100.0;
      tar.add(key + ".json", json.dump());
    }
    tar.finish();
  }

  static std::set<std::string> captions_of(const Source& source) {
    std::set<std::string> out;
    for (std::int64_t i = 0; i < source.size(); ++i) out.insert(indexed(source).get(i).captions.at(0));
    return out;
  }
};

TEST_F(FilterTest, SelectsSamplesOfShardsAndReportsTheReasons) {
  write_shard("a.tar", 0, 12);
  write_shard("b.tar", 12, 20);
  const auto source = make(concat("{name: webdataset, path: '", path("{a,b}.tar"),
                                  "', index_cache: 'off', filter: 'width >= 105 and similarity < 0.15'}"));
  EXPECT_EQ(source->size(), 9);
  EXPECT_EQ(source->describe(), concat("webdataset ", path("a.tar"),
                                       " and 1 more shards, 20 samples, of which 9 pass filter width >= 105 and "
                                       "similarity < 0.15: 9 do not, 2 lack similarity or have it of another type"));
  const auto names = captions_of(*source);
  EXPECT_TRUE(names.contains("picture 5") && names.contains("picture 14"));
  EXPECT_FALSE(names.contains("picture 4") || names.contains("picture 9") || names.contains("picture 15"));
  EXPECT_EQ(source->name_of(8), concat("sample 0000000014 of ", path("b.tar")));
}

TEST_F(FilterTest, IdsAndConditionsMustBothHold) {
  write_shard("a.tar", 0, 20);
  const std::string start = concat("{name: webdataset, path: '", path("a.tar"), "', index_cache: 'off', filter_ids: '",
                                   table_file("ids.npy"), "'");
  EXPECT_EQ(captions_of(*make(start + "}")),
            (std::set<std::string>{"picture 0", "picture 10", "picture 15", "picture 5"}));
  const auto both = make(start + ", filter: 'width > 106'}");
  EXPECT_EQ(captions_of(*both), (std::set<std::string>{"picture 10", "picture 15"}));
  EXPECT_EQ(both->describe(),
            concat("webdataset ", path("a.tar"), ", 20 samples, of which 2 pass filter width > 106 and filter_ids ",
                   table_file("ids.npy"), ": 7 do not, 11 are not listed"));
  EXPECT_EQ(error_of([&] { make(start + ", id_field: width}"); }),
            concat("webdataset ", path("a.tar"), ", 20 samples: 0 pass filter_ids ", table_file("ids.npy"),
                   ": 20 lack width or have it of another type; no sample has the side field width, or none has it of "
                   "that type"));
  EXPECT_TRUE(error_of([&] {
                make(concat("{name: webdataset, path: '", path("a.tar"), "', filter_ids: '",
                            table_file("ids_wrong.npy"), "'}"));
              }).starts_with(concat(table_file("ids_wrong.npy"), ": expected ids as pairs of uint64")));
}

TEST_F(FilterTest, ASideTableNextToAShardIsReadFirst) {
  if (!can_read_columns()) GTEST_SKIP() << "built without Arrow";
  io::TarWriter tar(path("00000.tar"));
  for (int i = 0; i < 7; ++i) {
    const std::string key = "00000000" + std::to_string(i);
    tar.add(key + ".png", test::noise_png(i));
    tar.add(key + ".txt", "picture " + std::to_string(i));
    tar.add(key + ".json", R"({"similarity": 0.9, "other": 1})");
  }
  tar.finish();
  io::write_file(path("00000.parquet"), io::read_file(table_file("side.parquet")));
  const std::string start = concat("{name: webdataset, path: '", path("00000.tar"), "', index_cache: 'off', ");
  // The table has no row for the seventh sample, so the source reads that sample's json member.
  EXPECT_EQ(captions_of(*make(start + "filter: 'similarity >= 0.3'}")),
            (std::set<std::string>{"picture 3", "picture 4", "picture 5", "picture 6"}));
  EXPECT_EQ(captions_of(*make(start + "filter: 'other == 1'}")).size(), 7U)
      << "only the json members have this field";
  io::write_file(path("00000.parquet"), "no table");
  EXPECT_TRUE(error_of([&] {
                make(start + "filter: 'similarity >= 0.3'}");
              }).starts_with(path("00000.parquet") + ": cannot be read"));
}

TEST_F(FilterTest, ReadsColumnsOfTablesAndMembersOfJsonLines) {
  std::string csv = "filepath,title,width,lang\n", lines;
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    write(n + ".png", test::noise_png(i));
    csv += n + ".png,picture " + n + "," + (i == 4 ? "" : std::to_string(10 * i)) + "," + (i % 2 == 0 ? "en" : "de") +
           "\n";
    lines += Json{{"image", n + ".png"}, {"caption", "picture " + n}, {"size", {{"width", 10 * i}}}}.dump() + "\n\n";
  }
  write("a.csv", csv);
  write("a.jsonl", lines);
  const auto table = make(concat("{name: csv, path: '", path("a.csv"), "', filter: \"width >= 5 and lang == 'en'\"}"));
  EXPECT_EQ(captions_of(*table), std::set<std::string>{"picture 2"});
  EXPECT_EQ(error_of([&] {
              make(concat("{name: csv, path: '", path("a.csv"), "', filter: 'width >= 5 and lang > 5'}"));
            }),
            concat("csv ", path("a.csv"), ", 6 samples: 0 pass filter width >= 5 and lang > 5: 1 do not, 5 lack lang or have it of ",
                   "another type"));
  EXPECT_TRUE(error_of([&] {
                make(concat("{name: csv, path: '", path("a.csv"), "', filter: 'height > 1'}"));
              }).starts_with(path("a.csv") + ": has no column height (filter)"));
  EXPECT_EQ(captions_of(*make(concat("{name: json_lines, path: '", path("a.jsonl"), "', images: '", path(""),
                                     "', filter: 'size.width >= 40'}"))),
            (std::set<std::string>{"picture 4", "picture 5"}));
  EXPECT_TRUE(error_of([&] {
                make("{name: shapes, filter: 'width > 1'}");
              }).ends_with("no sample has the side field width, or none has it of that type"));
  EXPECT_EQ(
      make("{name: mixture, sources: [{source: {name: shapes, size: 10}, label: a}, {source: {name: csv, path: '" +
           path("a.csv") + "', filter: 'width == 10'}}]}")
          ->size(),
      11);
}

TEST_F(FilterTest, FiltersAndMixturesCountTheirSamplesWithoutACaption) {
  std::string csv = "filepath,title,width\n";
  for (int i = 0; i < 6; ++i) {
    write(concat(i, ".png"), test::noise_png(i));
    csv += concat(i, ".png,", i % 2 == 0 ? "" : "a caption", ",", i, "\n");
  }
  write("a.csv", csv);
  const std::string table = "{name: csv, path: '" + path("a.csv") + "'";
  EXPECT_EQ(make(table + "}")->captionless(), 3);
  EXPECT_EQ(make(table + ", filter: 'width >= 3'}")->captionless(), 1);
  EXPECT_EQ(make("{name: mixture, sources: [{source: {name: shapes, size: 10}, label: a}, {source: " + table +
                 ", filter: 'width != 2'}}]}")
                ->captionless(),
            2);
}

TEST_F(FilterTest, ASourceWithoutAPathReportsTheKey) {
  for (const char* name : {"webdataset", "csv", "json_lines", "parquet"})
    for (const char* path_text : {"", ", path: ''", ", path: ['', '']"})
      EXPECT_TRUE(error_of([&] {
                    make(concat("{name: ", name, path_text, "}"));
                  }).starts_with("test:1: data.train.path: is not set; expected a file"))
          << name;
  EXPECT_EQ(error_of([&] { make("{name: image_folder}"); }), "test:1: data.train.path: is not set; expected a folder");
}

TEST_F(FilterTest, RowsOfParquetKeepTheirGroups) {
  if (!can_read_columns()) GTEST_SKIP() << "built without Arrow";
  const std::string start = concat("{name: parquet, path: '", table_file("plain-*.parquet"), "', ");
  const auto source = make(start + "filter: \"width < 106 or width >= 130 and meta.source.name == 'web'\"}");
  EXPECT_EQ(source->size(), 6 + 8);
  EXPECT_EQ(indexed(*source).get(6).captions.at(0), "picture 30");
  EXPECT_EQ(source->group_starts(), (std::vector<std::int64_t>{0, 6, 8, 14}));
  EXPECT_EQ(captions_of(*make(start + "filter_ids: '" + table_file("ids.npy") + "'}")).size(), 8U);
  EXPECT_TRUE(error_of([&] {
                make(start + "filter: 'height > 1'}");
              }).starts_with(table_file("plain-0.parquet") + ": has no column height (filter); its columns are key, "));
  EXPECT_TRUE(error_of([&] {
                make(start + "filter: 'width > 1000'}");
              }).ends_with("40 samples: 0 pass filter width > 1000: 40 do not"));
  const auto damaged =
      make(concat("{name: parquet, path: '", table_file("damaged.parquet"), "', filter: 'width >= 100'}"));
  EXPECT_TRUE(damaged->describe().ends_with("40 samples, of which 32 pass filter width >= 100: 8 cannot be read"))
      << damaged->describe();
}

TEST_F(FilterTest, StreamsReturnOnlyPassingSamplesAndResume) {
  write_shard("a.tar", 0, 20);
  ASSERT_TRUE(shell("gzip " + path("a.tar")));
  const auto counted =
      make(concat("{name: webdataset, path: '", path("a.tar.gz"), "', index_cache: 'off', filter: 'width < 112'}"));
  EXPECT_EQ(counted->size(), 12);
  EXPECT_TRUE(counted->describe().ends_with(", of which 12 pass filter width < 112: 8 do not")) << counted->describe();
  const auto told =
      make(concat("{name: webdataset, path: '", path("a.tar.gz"), "', filter: 'width < 112', stream: {samples: 12}}"));
  EXPECT_EQ(told->size(), 12);
  const auto loader = [&](std::int64_t threads) {
    const LoaderSettings settings = loader_settings(concat("{batch_size: 4, threads: ", threads, "}"));
    return Loader(told, std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, {}, 5);
  };
  Loader whole = loader(2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<std::string> seen;
    for (int i = 0; i < 3; ++i)
      for (const std::string& key : whole.next().keys) seen.insert(key);
    EXPECT_EQ(seen.size(), 12U);
  }
  expect_resumes(loader, 6, 1, 3);
  EXPECT_TRUE(
      error_of([&] {
        make(concat("{name: webdataset, path: '", path("a.tar.gz"), "', index_cache: 'off', filter: 'width > 500'}"));
      }).ends_with("0 pass filter width > 500: 20 do not"));
}

}  // namespace
}  // namespace tessera
