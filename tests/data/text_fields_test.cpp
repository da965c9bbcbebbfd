// Tests samples with named texts (text_fields) in each source that reads such texts. DreamLIP publishes its captions as named texts.

#include <gtest/gtest.h>

#include "src/data/formats/captions.h"
#include "src/data/packing/pack.h"
#include "src/data/sources/tables.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

const std::string kItem =
    R"("raw_caption": " a dog ", "shortIB_captions": ["a brown dog", ""], "longIB_captions": "A dog. It runs.", )"
    R"("longSV_captions": null, "url": 5)";
const Texts kNames = {"longIB_captions", "raw_caption", "longSV_captions", "shortIB_captions", "none"};

void expect_fields(const Sample& sample) {
  ASSERT_EQ(sample.texts.size(), 3U) << "missing and null fields must be left out";
  EXPECT_EQ(sample.texts[0].name, "longIB_captions") << "fields must have the order of the setting";
  EXPECT_EQ(sample.texts[0].texts, Texts{"A dog. It runs."});
  EXPECT_FALSE(sample.texts[0].is_list);
  EXPECT_EQ(sample.texts[1].name, "raw_caption");
  EXPECT_EQ(sample.texts[2].texts, (Texts{"a brown dog", ""}));
  EXPECT_TRUE(sample.texts[2].is_list);
}

class TextFields : public FolderTest {
 protected:
  TextFields() { write("a.png", image_); }

  std::shared_ptr<const IndexedSource> json_lines(const std::string& lines, const Texts& caption_key) const {
    write("data.jsonl", lines);
    JsonLinesSettings settings;
    settings.path = {{path("data.jsonl")}};
    settings.images = path("");
    settings.caption_keys = caption_key;
    settings.text_fields = kNames;
    return make_json_lines(settings);
  }

  std::shared_ptr<const IndexedSource> shard(const std::vector<std::pair<std::string, std::string>>& files) const {
    io::TarWriter tar(path("a.tar"));
    for (const auto& [key, json] : files) {
      tar.add(key + ".png", image_);
      tar.add(key + ".json", json);
    }
    tar.finish();
    WebDatasetSettings settings;
    settings.path = {{path("a.tar")}};
    settings.text_fields = kNames;
    settings.index_cache = "off";
    return indexed(make_webdataset(settings));
  }

  std::string image_ = test::encode(test::noise(8, 9, 1), ".png");
};

TEST_F(TextFields, AreReadFromJsonLines) {
  const auto source = json_lines(R"({"image": "a.png", )" + kItem + "}", {"raw_caption"});
  expect_fields(source->get(0));
  EXPECT_EQ(source->get(0).captions, Texts{"a dog"});
}

TEST_F(TextFields, TheFirstFieldBecomesTheCaptionIfThereIsNone) {
  const auto lines = json_lines(R"({"image": "a.png", )" + kItem + "}", {});
  EXPECT_EQ(lines->get(0).captions, Texts{"A dog. It runs."});
  EXPECT_EQ(lines->captions(0), Texts{"A dog. It runs."});
  EXPECT_EQ(lines->captionless(), 0);
  const auto tar = shard({{"x", "{" + kItem + "}"}, {"y", R"({"caption": "own", )" + kItem + "}"}});
  EXPECT_EQ(tar->get(0).captions, Texts{"A dog. It runs."});
  EXPECT_EQ(tar->caption_count(0), 1);
  EXPECT_EQ(tar->captions(0), Texts{"A dog. It runs."});
  EXPECT_EQ(tar->get(1).captions, Texts{"own"});
}

TEST_F(TextFields, AreReadFromTheJsonMembersOfAShard) {
  expect_fields(shard({{"x", "{" + kItem + "}"}})->get(0));
}

TEST_F(TextFields, AreReadFromTheColumnsOfATable) {
  write("data.csv", "image,raw_caption,long\na.png,a dog,\"A dog. It\nruns.\"\na.png,a cat, \n");
  CsvSettings settings;
  settings.path = {{path("data.csv")}};
  settings.separator = "comma";
  settings.image_keys = {"image"};
  settings.caption_keys = {};
  settings.text_fields = {"long", "raw_caption"};
  const auto source = make_csv(settings);
  EXPECT_EQ(source->get(0).texts[0].texts, Texts{"A dog. It\nruns."});
  EXPECT_EQ(source->get(0).captions, Texts{"A dog. It\nruns."});
  ASSERT_EQ(source->get(1).texts.size(), 1U) << "an empty field must be left out";
  EXPECT_EQ(source->get(1).texts[0].name, "raw_caption");
  EXPECT_EQ(source->get(1).captions, Texts{"a cat"});
  settings.text_fields = {"length"};
  EXPECT_NE(error_of([&] { make_csv(settings); }).find("text_fields"), std::string::npos);
  settings.text_fields = {};
  EXPECT_EQ(error_of([&] { make_csv(settings); }),
            "csv: caption_keys is empty; expected at least one column, or text_fields");
}

TEST_F(TextFields, AFieldOfTheWrongTypeIsReportedWithKeyAndField) {
  const auto lines = json_lines("{\"image\": \"a.png\", \"raw_caption\": 7}\n{\"image\": \"a.png\", \"raw_caption\": \"x\"}", {});
  EXPECT_EQ(sample_error_of(*lines, 0),
            "bad_text_field: sample a.png: its field raw_caption (text_fields) is of type number; expected a text or a "
            "list of texts");
  EXPECT_EQ(sample_error_of(*lines, 1), "no error");
  const auto tar = shard({{"x", R"({"raw_caption": ["a", null]})"}});
  EXPECT_NE(sample_error_of(*tar, 0).find(
                "sample x: its field raw_caption (text_fields) is a list with an item of type null; expected"),
            std::string::npos)
      << sample_error_of(*tar, 0);
}

TEST_F(TextFields, ArePackedAndReadBack) {
  const auto source = json_lines(R"({"image": "a.png", )" + kItem + "}", {"raw_caption"});
  PackSettings settings{.folder = path("packed")};
  pack(*source, "", settings);
  WebDatasetSettings reading;
  reading.path = {{path("packed/shard-00000.tar")}};
  reading.text_fields = kNames;
  reading.index_cache = "off";
  expect_fields(indexed(make_webdataset(reading))->get(0));
}

TEST_F(TextFields, ATextFieldNamedCaptionDoesNotBecomeACaptionWhenPacked) {
  write("data.csv", "image,title,caption\na.png,a dog,A dog. It runs.\n");
  CsvSettings settings;
  settings.path = {{path("data.csv")}};
  settings.separator = "comma";
  settings.image_keys = {"image"};
  settings.caption_keys = {"title"};
  settings.text_fields = {"caption"};
  pack(*make_csv(settings), "", {.folder = path("packed")});
  WebDatasetSettings reading;
  reading.path = {{path("packed/shard-00000.tar")}};
  reading.text_fields = {"original_caption"};
  reading.index_cache = "off";
  const Sample sample = indexed(make_webdataset(reading))->get(0);
  EXPECT_EQ(sample.captions, Texts{"a dog"});
  ASSERT_EQ(sample.texts.size(), 1U);
  EXPECT_EQ(sample.texts[0].texts, Texts{"A dog. It runs."});
}

TEST(Sentences, EndAtFullStopsLineEndsAndEndMarkers) {
  EXPECT_EQ(caption_sentences("One. Two\nThree</s>It costs 3.5 .. \n"), (Texts{"One", "Two", "Three", "It costs 3", "5"}));
  EXPECT_EQ(caption_sentences(" . \n"), Texts{});
  EXPECT_EQ(caption_sentences("</s"), Texts{"</s"});
}

}  // namespace
}  // namespace tessera
