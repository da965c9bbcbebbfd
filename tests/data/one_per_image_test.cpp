// Tests that samples with the same image become one sample.

#include "src/data/sources/one_per_image.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"
#include "src/data/packing/inspect.h"
#include "src/data/sources/tables.h"
#include "src/data/sources/mixture.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

/// Samples whose image files are known by number; 0: unknown.
class NumberedSource final : public MemorySource {
 public:
  NumberedSource(std::vector<Sample> samples, std::vector<std::uint64_t> ids)
      : MemorySource(std::move(samples)), ids_(std::move(ids)) {}
  std::vector<std::uint64_t> image_ids() const override { return ids_; }

 private:
  std::vector<std::uint64_t> ids_;
};

std::shared_ptr<const IndexedSource> merged(std::vector<Sample> samples, std::vector<std::uint64_t> ids) {
  return indexed(one_sample_per_image(std::make_shared<NumberedSource>(std::move(samples), std::move(ids))));
}

class OnePerImage : public FolderTest {
 protected:
  OnePerImage() {
    for (const char* name : {"a.png", "b.png", "c.png", "x/d.png"}) write(name, test::noise_png(name[0]));
  }
  /// Returns a table in which a.png has three rows, b.png two, and c.png, which has the bytes of a.png, one.
  std::shared_ptr<const IndexedSource> table() const {
    write("c.png", test::noise_png('a'));
    write("t.csv", "filepath\ttitle\na.png\t1\nb.png\t2\n./a.png\t3\nc.png\t4\n" + path("x/../b.png") + "\t5\n" +
                       path("a.png") + "\t6\n");
    return make_csv(PathList{{path("t.csv")}});
  }
};

TEST_F(OnePerImage, RowsOfOneFileAreOneSampleHoweverItIsWritten) {
  const auto source = table();
  const auto one = indexed(one_sample_per_image(source));
  ASSERT_EQ(one->size(), 3);
  EXPECT_EQ(one->describe(), source->describe());
  EXPECT_EQ(one->get(0).key, "a.png");
  EXPECT_EQ(one->get(0).captions, (Texts{"1", "3", "6"})) << "in the order of the rows";
  EXPECT_EQ(one->captions(1), (Texts{"2", "5"}));
  EXPECT_EQ(one->get(2).captions, Texts{"4"}) << "equal bytes under another name";
  EXPECT_EQ(one->get(2).encoded, one->get(0).encoded);
  const auto all = indexed(one_sample_per_image(source, /*equal_bytes=*/true));
  ASSERT_EQ(all->size(), 2);
  EXPECT_EQ(all->get(0).captions, (Texts{"1", "3", "4", "6"}));
  EXPECT_EQ(one_sample_per_image(one), one) << "nothing is left to merge";
}

TEST_F(OnePerImage, FiltersAndMixturesKnowTheFiles) {
  table();
  const auto source = [](const std::string& yaml) {
    return sources().make(config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, "c.yaml"), "", {}), "");
  };
  const std::string csv = "{name: csv, path: " + path("t.csv");
  EXPECT_EQ(one_sample_per_image(source(csv + ", filter: title > 2}"))->size(), 3);
  EXPECT_EQ(one_sample_per_image(source(csv + ", filter: title > 4}"))->size(), 2);
  const auto mixture = indexed(one_sample_per_image(
      source("{name: mixture, mode: concat, sources: [{source: {name: shapes, size: 4}}, {label: x, source: " + csv +
             "}}, {label: y, source: " + csv + "}}]}")));
  EXPECT_EQ(mixture->size(), 4 + 3);
  EXPECT_EQ(mixture->get(4).key, "x:a.png");
  EXPECT_EQ(mixture->get(4).captions, (Texts{"1", "3", "6", "1", "3", "6"}));
}

TEST_F(OnePerImage, AnnotationsOfAllRowsAreKept) {
  std::vector<Sample> samples = make_samples(3);
  const ObjectAnnotation dog{.label = 1, .box = {1, 2, 3, 4}, .phrase = "dog"};
  samples[0].objects = {dog};
  samples[2].objects = {dog,
                        {.box = {0, 0, 5, 5}, .phrase = "first", .span = {0, 5}, .caption = 0},
                        {.label = 2, .box = {1, 2, 3, 4}, .phrase = "cat"}};
  samples[0].texts = {{{{"short"}, false}, "alt"}};
  samples[2].texts = {{{{"short", "long"}, true}, "alt"}, {{{"x"}, false}, "more"}};
  samples[2].summary = "of the last row";
  samples[0].label = samples[2].label = 1;
  const Sample sample = merged(samples, {7, 0, 7})->get(0);
  ASSERT_EQ(sample.objects.size(), 3U) << "the dog counts once";
  EXPECT_EQ(sample.objects[1].caption, 2);
  EXPECT_EQ(sample.captions.at(2), "first 2") << "the caption that names the object";
  EXPECT_EQ(sample.objects[2].phrase, "cat");
  ASSERT_EQ(sample.texts.size(), 2U);
  EXPECT_EQ(sample.texts[0].texts, (Texts{"short", "long"}));
  EXPECT_TRUE(sample.texts[0].is_list);
  EXPECT_EQ(sample.summary, "of the last row");
  EXPECT_EQ(sample.label, 1);
}

TEST_F(OnePerImage, DifferentLabelsAreNoLabel) {
  std::vector<Sample> samples = make_samples(4);
  samples[0].label = samples[2].label = samples[3].label = 1;
  samples[1].label = 2;
  samples[0].mask = samples[1].mask = {1, 2};
  testing::internal::CaptureStderr();
  const auto source = merged(samples, {7, 7, 7, 8});
  const Sample sample = source->get(0);
  source->get(0);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(sample.label, -1);
  EXPECT_EQ(sample.mask, samples[0].mask);
  EXPECT_EQ(source->get(1).label, 1);
  const std::string line = "the rows of the image 0 have different labels";
  EXPECT_NE(log.find(line), std::string::npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << "once";
}

TEST_F(OnePerImage, BadRowsAreLeftOutAndToldOnce) {
  write("classes.txt", "cat\ndog\n");
  write("t.csv", "filepath\ttitle\tkind\na.png\t1\tcow\na.png\t2\tdog\na.png\t3\tcow\nb.png\t4\tcow\nb.png\t5\tpig\n");
  CsvSettings settings(PathList{{path("t.csv")}});
  settings.label_keys = {"kind"};
  settings.classes = path("classes.txt");
  const auto one = indexed(one_sample_per_image(make_csv(settings)));
  ASSERT_EQ(one->size(), 2);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    const Sample sample = one->get(0);
    EXPECT_EQ(sample.captions, Texts{"2"});
    EXPECT_EQ(sample.label, 1);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line =
      "a row of an image with other rows is bad and left out (bad_label: " + path("t.csv") + ":2: ";
  EXPECT_NE(log.find(line), std::string::npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << "once";
  EXPECT_EQ(one->bad_rows(), 2);
  EXPECT_TRUE(sample_error_of(*one, 1).starts_with("bad_label: " + path("t.csv") + ":5: ")) << "all its rows are bad";
}

TEST_F(OnePerImage, AFileThroughALinkIsTheSameImage) {
  std::filesystem::create_directory_symlink(path("x"), path("link"));
  std::filesystem::create_symlink("a.png", path("link.png"));
  std::filesystem::create_symlink("link.png", path("again.png"));
  std::filesystem::create_directory(path("y"));
  std::filesystem::create_symlink("../x/d.png", path("y/d.png"));
  std::filesystem::create_symlink("../a.png", path("y/cached.png"));
  write("t.csv", "filepath\ttitle\nx/d.png\t1\nlink/d.png\t2\ny/d.png\t3\na.png\t4\nlink.png\t5\nagain.png\t6\ny/cached.png\t7\n");
  const auto one = indexed(one_sample_per_image(make_csv(PathList{{path("t.csv")}})));
  ASSERT_EQ(one->size(), 3);
  EXPECT_EQ(one->get(0).captions, (Texts{"1", "2", "3"}));
  EXPECT_EQ(one->get(1).captions, (Texts{"4", "5", "6"}));
  EXPECT_EQ(one->get(2).captions, Texts{"7"}) << "names that link to one file of a cache are different images";
}

TEST_F(OnePerImage, InspectCountsImagesAndCaptions) {
  const auto report = nlohmann::json::parse(inspect(*table(), {}, [](std::int64_t, std::int64_t) {}).report);
  EXPECT_EQ(report.at("read"), 6);
  EXPECT_EQ(report.at("images"), 3);
  EXPECT_EQ(report.at("captions"), 6);
  EXPECT_EQ(report.at("repeated").at("pictures").at("count"), 1) << "of different images, only c.png repeats another";
  EXPECT_EQ(report.at("repeated").at("pictures").at("first"), "c.png");
}

TEST_F(OnePerImage, TrainingReadsRowsButKnowsTheirImage) {
  Needs needs;
  needs.texts["caption"] = {};
  needs.duplicates = true;
  LoaderSettings settings = loader_settings("{batch_size: 6, threads: 1, shuffle: false}");
  Loader loader(table(), std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, needs, 1);
  const at::Tensor group = loader.next().duplicates.image_group;
  ASSERT_EQ(group.size(0), 6);
  const auto equal = [&](std::int64_t i, std::int64_t j) {
    return group[i].item<std::int64_t>() == group[j].item<std::int64_t>();
  };
  EXPECT_TRUE(equal(0, 2) && equal(0, 5) && equal(1, 4) && !equal(0, 1));
}

TEST_F(OnePerImage, ParquetRowsOfOneNameAndTheSameBytesAreOneSample) {
  if (!can_read_columns()) GTEST_SKIP() << "built without Arrow";
  const auto in = [](const char* name) {
    return indexed(
        one_sample_per_image(make_parquet(PathList{{std::string(TESSERA_TEST_DATA) + "/parquet/" + name}})));
  };
  const auto pairs = in("rows.parquet");
  EXPECT_EQ(pairs->size(), 5);
  EXPECT_EQ(pairs->get(0).captions, (Texts{"0", "6"}));
  EXPECT_EQ(pairs->get(1).captions, (Texts{"1", "3", "4"})) << "./b.png is b.png";
  EXPECT_EQ(pairs->get(2).captions, Texts{"2"}) << "the name a.png with other bytes, as from another folder";
  EXPECT_EQ(pairs->get(3).captions, Texts{"5"}) << "the bytes of b.png without a name";
  EXPECT_EQ(pairs->get(4).captions, (Texts{"7", "8"})) << "the file itself";
  EXPECT_EQ(in("row_keys.parquet")->size(), 3) << "rows with bytes alone are known by their keys";
  EXPECT_EQ(in("row_keys.parquet")->get(0).captions, (Texts{"0", "3"}));
  const auto unnamed = in("row_keys_of_pairs.parquet");
  ASSERT_EQ(unnamed->size(), 3) << "pairs without names, too";
  EXPECT_EQ(unnamed->get(0).captions, (Texts{"0\nline", "2\nline"}));
  EXPECT_EQ(unnamed->get(2).captions, Texts{"3\nline"}) << "the key x with other bytes";
  EXPECT_EQ(in("plain-0.parquet")->describe(),
            make_parquet(PathList{{std::string(TESSERA_TEST_DATA) + "/parquet/plain-0.parquet"}})->describe());
}

}  // namespace
}  // namespace tessera
