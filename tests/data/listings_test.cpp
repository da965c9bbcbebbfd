// Tests sources that list their images in a table, a JSON file or a binary file.

#include <array>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/sources/benchmarks.h"
#include "src/data/sources/tables.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

using test::noise_png;
using Texts = std::vector<std::string>;

class Listings : public FolderTest {
 protected:
  CsvSettings table(const std::string& content) const {
    write("t.csv", content);
    return PathList{{path("t.csv")}};
  }
  std::string csv_error(const CsvSettings& settings) const {
    return error_of([&] { make_csv(settings); });
  }
};

TEST_F(Listings, CsvReadsOpenClipsColumns) {
  write("pictures/a.png", noise_png(1));
  write("pictures/b.png", noise_png(2));
  const auto source =
      make_csv(table("id\tfilepath\ttitle\n"
                     "7\tpictures/a.png\tone dog\n"
                     "\n"
                     "8\tpictures/b.png\tcaf\xC3\xA9 \"inside\"\r\n"
                     "9\tpictures/a.png\n"
                     "9\tpictures/none.png\tx"));
  ASSERT_EQ(source->size(), 4);
  EXPECT_EQ(source->describe(), "csv " + path("t.csv") + ", 4 samples");
  EXPECT_EQ(source->get(0).key, "pictures/a.png");
  EXPECT_EQ(source->get(0).encoded, noise_png(1));
  EXPECT_EQ(source->get(0).captions, Texts{"one dog"});
  EXPECT_EQ(source->get(1).captions, Texts{"caf\xC3\xA9 \"inside\""});
  EXPECT_TRUE(source->get(2).captions.empty()) << "missing fields at the end of a row must be empty";
  EXPECT_EQ(sample_error_of(*source, 3), "no_image: " + path("pictures/none.png") + ": no such file");
}

TEST_F(Listings, CsvQuotesMayContainSeparatorsLineEndsAndQuotes) {
  write("a.png", noise_png(1));
  CsvSettings settings = table(
      "\xEF\xBB\xBF\"image\",text,\"more\"\r\n"
      "a.png,\"one, \"\"two\"\"\nthree\",\"\"\r\n"
      "\"a.png\",  plain \"quote\" ,last\r\n");
  settings.separator = "comma";
  settings.image_keys = {"image"};
  settings.caption_keys = {"text", "more"};
  const auto source = make_csv(settings);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->get(0).captions, Texts{"one, \"two\"\nthree"});
  EXPECT_EQ(source->get(1).captions, (Texts{"plain \"quote\"", "last"}));
}

TEST_F(Listings, TheSeparatorIsDetectedFromTheFirstLine) {
  write("a.png", noise_png(1));
  for (const char* text : {"filepath,title\na.png,x\n", "filepath\ttitle\na.png\tx\n", "filepath;title\na.png;x\n", "filepath|title\na.png|x\n",
                           "\"filepath\",\"title\"\na.png,x\n", "title;filepath;a,b,c\nx;a.png;\n", "filepath\ttitle\ta;b,c\na.png\tx\t\n"})
    EXPECT_EQ(make_csv(table(text))->get(0).captions, Texts{"x"}) << text;
}

TEST_F(Listings, CsvErrorsNameFileLineAndColumns) {
  write("a.png", noise_png(1));
  EXPECT_EQ(csv_error(table("image,title\na.png,x\n")),
            path("t.csv") + ": has no column filepath (image_keys); its columns are: image and title");
  CsvSettings settings = table("image,title\na.png,x\n");
  settings.separator = "tab";
  EXPECT_EQ(csv_error(settings),
            path("t.csv") +
                ": has no column filepath (image_keys); its columns are: image,title; the line holds \",\", "
                "the separator is a tab: set separator");
  settings = table("filepath\tcaption\na.png\tx\n");
  EXPECT_EQ(csv_error(settings),
            path("t.csv") + ": has no column title (caption_keys); its columns are: filepath and caption");
  EXPECT_EQ(csv_error(table("filepath\ttitle\na.png\tx\n\na.png\t\"x\ny\n\n")),
            path("t.csv") + ":4: the double quote that opens here is never closed");
  EXPECT_EQ(csv_error(table("filepath\ttitle\n\tx\n")), path("t.csv") + ":2: has no filepath (image_keys); its members are: title");
  EXPECT_EQ(csv_error(table("filepath\tfilepath\n")), path("t.csv") + ":1: two columns are named filepath");
  EXPECT_EQ(csv_error(table("")), path("t.csv") + ": is empty; expected a first line that names the columns");
  EXPECT_EQ(csv_error(table("filepath\ttitle\n")), "csv " + path("t.csv") + ": names no images");
  EXPECT_EQ(csv_error(table(std::string("\xFF\xFE"
                                        "f\0",
                                        4))),
            path("t.csv") + ": is UTF-16; expected UTF-8: convert it first");
  EXPECT_EQ(csv_error(table("filepath\ttitle\nq.png\tx\nr.png\ty\n")),
            "csv " + path("t.csv") + ": none of the first 2 images exists (the first: " + path("q.png") +
                "): check the folder of the images");
  settings.separator = "::";
  EXPECT_EQ(csv_error(settings), "separator: expected one character, tab or comma, got \"::\"");
}

TEST_F(Listings, ABadCsvRowIsABadSample) {
  write("a.png", noise_png(1));
  write("names", "dog\nemu\nemu\n");
  CsvSettings settings = table(
      "filepath\ttitle\tclass\n\tx\t0\na.png\tx\tdog\na.png\tx\tdog\ty\na.png\t\tdog\na.png\tx\tcat\na.png\tx\temu\n");
  settings.label_keys = {"class"};
  settings.classes = path("names");
  const auto source = make_csv(settings);
  ASSERT_EQ(source->size(), 6);
  EXPECT_EQ(sample_error_of(*source, 0), "no_image: " + path("t.csv") + ":2: has no filepath (image_keys); its members are: title and class");
  EXPECT_EQ(source->get(1).label, 0);
  EXPECT_EQ(sample_error_of(*source, 2),
            "bad_row: " + path("t.csv") +
                ":4: has 4 fields, but there are 3 columns; a field that holds a tab must be in double quotes");
  EXPECT_TRUE(source->get(3).captions.empty());
  EXPECT_EQ(sample_error_of(*source, 4),
            "bad_label: " + path("t.csv") +
                ":6: its class \"cat\" (label_keys) is neither an index nor a name in the file of classes (classes)");
  EXPECT_EQ(sample_error_of(*source, 5),
            "bad_label: " + path("t.csv") +
                ":7: its class \"emu\" (label_keys) is the name of several classes in the file of classes (classes)");
  EXPECT_EQ(
      csv_error(table("filepath\ttitle\na.png\tx\ty\n")),
      path("t.csv") + ":2: has 3 fields, but there are 2 columns; a field that holds a tab must be in double quotes")
      << "if all rows are bad, the table is";
}

TEST_F(Listings, CsvReadsLabelsAsNumbersOrNames) {
  write("a.png", noise_png(1));
  CsvSettings settings = table("filepath\ttitle\tclass\na.png\tx\temu\na.png\tx\tcat\na.png\tx\t\na.png\tx\temu\n");
  settings.label_keys = {"class"};
  auto source = make_csv(settings);
  EXPECT_EQ(source->class_names(), (Texts{"cat", "emu"}));
  EXPECT_EQ(source->get(0).label, 1);
  EXPECT_EQ(source->get(1).label, 0);
  EXPECT_EQ(source->get(2).label, -1);
  write("names", "dog\nemu\ncat\n");
  settings.classes = path("names");
  EXPECT_EQ(make_csv(settings)->get(1).label, 2);
  settings = table("filepath\ttitle\tclass\na.png\tx\t12\na.png\tx\t-1\n");
  settings.label_keys = {"class"};
  source = make_csv(settings);
  EXPECT_TRUE(source->class_names().empty());
  EXPECT_EQ(source->get(0).label, 12);
  EXPECT_EQ(source->get(1).label, -1);
}

TEST_F(Listings, FormerNamesOfKeysMeanThePresentOnes) {
  const auto resolved = [&](const std::string& text) { return config::to_yaml(sources().resolve({"csv", config::parse_yaml(text, "a.yaml")}, "source").settings); };
  const std::string present = resolved("{path: " + path("t.csv") + ", image_keys: [f], caption_keys: [a, b], label_keys: []}");
  testing::internal::CaptureStderr();
  EXPECT_EQ(resolved("{path: " + path("t.csv") + ", image_key: f, caption_key: [a, b], label_key: ''}"), present);
  resolved("{path: " + path("t.csv") + ", image_key: f}");
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "a.yaml:1: source.image_key: is now called image_keys; the former name still works";
  ASSERT_NE(log.find(line), std::string::npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << "once";
}

std::string safetensors_of(const std::string& header, const std::vector<float>& values) {
  std::string out(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  out += header;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return out;
}

TEST_F(Listings, CsvReadsSummariesObjectsRegionsAndMasks) {
  write("in/a.png", noise_png(1));
  write("in/a.mask.png", test::encode_mat(cv::Mat(8, 9, CV_8U, cv::Scalar(2)), ".png"));
  write("in/a.safetensors", safetensors_of(R"({"box":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                                           R"("feature":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}})",
                                           {9, 8, 1, 2, 3, 4}));
  CsvSettings settings = table(
      "filepath\ttitle\ts\to\tr\tm\na.png\tx\tshort\tdog, cat\ta.safetensors\ta.mask.png\n"
      "a.png\tx\t\t\ta.png\t\n");
  settings.root = path("in");
  settings.summary_keys = {"s"};
  settings.object_keys = {"o"};
  settings.region_keys = {"r"};
  settings.mask_keys = {"m"};
  settings.region_tensor = "feature";
  auto source = make_csv(settings);
  const Sample sample = source->get(0);
  EXPECT_EQ(sample.key, "a.png");
  EXPECT_EQ(sample.summary, "short");
  EXPECT_EQ(sample.object_tags, "dog, cat");
  EXPECT_EQ(sample.mask, std::vector<std::uint8_t>(72, 2));
  EXPECT_EQ(sample.regions, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(sample.region_width, 2);
  EXPECT_TRUE(sample_error_of(*source, 1).starts_with("bad_regions: sample a.png: the region features are not [R, F]"));
  settings.region_tensor = "";
  EXPECT_EQ(make_csv(settings)->get(0).regions, (std::vector<float>{9, 8}));
  settings.region_tensor = "other";
  EXPECT_EQ(
      sample_error_of(*make_csv(settings), 0),
      "bad_regions: sample a.png: the region features are not [R, F] floats: there is no tensor other; there are: "
      "box and feature");
}

TEST_F(Listings, CsvReadsSeveralTablesFromDifferentFolders) {
  for (const char* part : {"p1", "p2"}) {
    write(std::string(part) + "/t.csv", std::string("filepath\ttitle\na.png\t") + part + "\n");
    write(std::string(part) + "/a.png", noise_png(part[1]));
  }
  CsvSettings settings;
  settings.path = {{path("p{1..2}/t.csv")}};
  const auto source = make_csv(settings);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->get(0).encoded, noise_png('1'));
  EXPECT_EQ(source->get(1).encoded, noise_png('2'));
  EXPECT_EQ(source->get(1).captions, Texts{"p2"});
}

TEST_F(Listings, CocoCaptionsAreGroupedByImageInTheOrderOfTheFile) {
  write("val/x 1.png", noise_png(1));
  write(
      "c.json",
      R"({"info": {"a": [1, {"b": 2}]}, "annotations": [)"
      R"({"image_id": 5, "id": 31, "caption": "second\n"}, {"image_id": 9, "id": 2, "caption": "other"},)"
      R"({"image_id": 5, "id": 30, "caption": "first"}, {"image_id": 77, "id": 1, "caption": "of none"}, {"image_id": 5, "id": 3, "caption": null}],)"
      R"("licenses": [3, {"x": []}], "images": [{"id": 5, "file_name": "x 1.png", "more": {"deep": [{}]}},)"
      R"({"id": 9, "file_name": "lost.png"}, {"id": 10, "file_name": "silent.png"}]})");
  CocoCaptionsSettings settings{path("c.json"), path("val")};
  const auto source = make_coco_captions(settings);
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->describe(), "coco_captions " + path("c.json") + ", 3 samples");
  const Sample sample = source->get(0);
  EXPECT_EQ(sample.key, "x 1.png");
  EXPECT_EQ(sample.captions, (Texts{"second", "first"})) << "the same order as in pycocotools and torchvision";
  EXPECT_EQ(sample.encoded, noise_png(1));
  EXPECT_EQ(sample_error_of(*source, 1), "no_image: " + path("val/lost.png") + ": no such file");
  const auto error = [&](const std::string& json) {
    write("c.json", json);
    return error_of([&] { make_coco_captions(settings); });
  };
  EXPECT_EQ(error(R"({"images": [{"id": 1}], "annotations": []})"),
            path("c.json") + ": images[0]: has no file_name; expected a text");
  EXPECT_EQ(error(R"({"images": [{"id": "1", "file_name": "a"}], "annotations": []})"),
            path("c.json") + ": images[0].id: expected a whole number, got string");
  EXPECT_EQ(error(R"({"images": [{"id": 1, "file_name": "a"}, 5], "annotations": []})"),
            path("c.json") + ": images[1]: expected an object, got number");
  EXPECT_EQ(error(R"({"images": [{"id": 1, "file_name": "a"}, [5]], "annotations": []})"),
            path("c.json") + ": images[1]: expected an object, got array");
  EXPECT_EQ(error(R"({"images": {"id": 1}, "annotations": []})"),
            path("c.json") + ": images: expected a list, got an object");
  EXPECT_EQ(error(R"({"images": 3, "annotations": []})"), path("c.json") + ": images: expected a list, got number");
  EXPECT_EQ(error(R"({"pictures": [], "annotations": []})"),
            path("c.json") + ": has no list \"images\"; its members are: pictures and annotations");
  EXPECT_EQ(error("[1]"), path("c.json") + ": expected an object { }, got a list");
  EXPECT_EQ(error("7"), path("c.json") + ": expected an object { }, got number");
  EXPECT_EQ(error("{\"images\":\n [{]}"), path("c.json") + ":2: is not JSON (byte 15 of 16)");
  EXPECT_EQ(error("{\"images\": [1e400]}"), path("c.json") + ": holds a number that is too large for any type");
  EXPECT_EQ(error("{\"images\": []"), path("c.json") + ":1: is not JSON (byte 14 of 13): the file is cut off");
  EXPECT_EQ(error(R"({"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}], "annotations": []})"),
            path("c.json") + ": images[1]: id 1 is already used by an earlier item");
}

TEST_F(Listings, KarpathysSplitsAreSelectedByName) {
  write("coco/val2014/v.png", noise_png(1));
  write("coco/train2014/t.png", noise_png(2));
  write("k.json", R"({"images": [)"
                  R"({"filepath": "val2014", "filename": "v.png", "split": "restval", "cocoid": 1,)"
                  R"( "sentences": [{"tokens": ["a"], "raw": "A.", "sentid": 4}, {"raw": "B "}]},)"
                  R"({"filepath": "train2014", "filename": "t.png", "split": "train", "sentences": [{"raw": "C"}]},)"
                  R"({"filename": "f.png", "split": "test", "sentences": []}], "dataset": "coco"})");
  KarpathySettings settings{path("k.json"), path("coco"), "train+restval"};
  auto source = make_karpathy(settings);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->get(0).key, "val2014/v.png");
  EXPECT_EQ(source->get(0).captions, (Texts{"A.", "B"}));
  EXPECT_EQ(source->get(1).encoded, noise_png(2));
  settings.split = "train";
  source = make_karpathy(settings);
  EXPECT_EQ(source->size(), 1);
  EXPECT_EQ(source->describe(), "karpathy " + path("k.json") + " (train), 1 samples");
  settings.split = "val";
  EXPECT_EQ(error_of([&] { make_karpathy(settings); }),
            path("k.json") +
                ": has no split \"val\"; there are: restval (1 images), test (1 images) and train (1 images)");
  write("k.json", R"({"images": [{"filename": "f", "split": "val", "sentences": [{"tokens": []}]}]})");
  EXPECT_EQ(error_of([&] { make_karpathy(settings); }),
            path("k.json") + ": images[0].sentences[0]: has no raw; expected a text");
}

TEST_F(Listings, AnItemThatLacksAMemberIsABadSample) {
  write("v.png", noise_png(1));
  write(
      "k.json",
      R"({"images": [{"filename": "v.png", "split": "val", "sentences": [{"raw": "A"}]},)"
      R"({"split": "val", "sentences": []}, {"filename": "v.png", "sentences": []},)"
      R"({"filename": "v.png", "split": "val", "sentences": [{"tokens": []}]}, {"filename": "w.png", "split": "test"}]})");
  const auto source = make_karpathy({path("k.json"), path("."), "val"});
  ASSERT_EQ(source->size(), 4);
  EXPECT_EQ(source->get(0).captions, Texts{"A"});
  EXPECT_EQ(sample_error_of(*source, 1),
            "bad_item: " + path("k.json") + ": images[1]: has no filename; expected a text");
  EXPECT_EQ(sample_error_of(*source, 2), "bad_item: " + path("k.json") + ": images[2]: has no split; expected a text");
  EXPECT_TRUE(sample_error_of(*source, 3).starts_with("bad_item: ")) << "its sentence has no raw";
  write("c.json", R"({"images": [{"id": 1, "file_name": "v.png"}, {"id": 2}, {"file_name": "v.png"}],)"
                  R"("annotations": [{"image_id": 1, "caption": "B"}, {"caption": "of no image"}]})");
  testing::internal::CaptureStderr();
  const auto coco = make_coco_captions({path("c.json"), path(".")});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find("1 of 2 captions are left out (the first: " + path("c.json") + ": annotations[1]: has no image_id"),
      std::string::npos)
      << said;
  ASSERT_EQ(coco->size(), 3);
  EXPECT_EQ(coco->get(0).captions, Texts{"B"});
  EXPECT_EQ(sample_error_of(*coco, 1),
            "bad_item: " + path("c.json") + ": images[1]: has no file_name; expected a text");
  EXPECT_EQ(sample_error_of(*coco, 2),
            "bad_item: " + path("c.json") + ": images[2]: has no id; expected a whole number");
}

std::string cifar_record(const std::string& labels, int seed) {
  std::string record = labels;
  for (int i = 0; i < 3072; ++i) record += static_cast<char>(i * 7 + seed);
  return record;
}

TEST_F(Listings, Cifar10ReadsItsBinaryFiles) {
  for (int i = 1; i <= 5; ++i)
    write("c/cifar-10-batches-bin/data_batch_" + std::to_string(i) + ".bin",
          cifar_record(std::string(1, static_cast<char>(i)), i) + cifar_record(std::string(1, '\0'), 50));
  write("c/cifar-10-batches-bin/test_batch.bin", cifar_record("\x0B", 0));
  CifarSettings settings{.path = path("c"), .templates = {"a photo of a {}.", "{}"}};
  auto source = make_cifar(settings);
  ASSERT_EQ(source->size(), 10);
  EXPECT_EQ(source->class_names()[9], "truck");
  EXPECT_EQ(source->describe(), "cifar10 " + path("c") + " (train), 10 images");
  const Sample sample = source->get(4);
  EXPECT_EQ(sample.key, "data_batch_3/0");
  EXPECT_EQ(sample.label, 3);
  EXPECT_EQ(sample.captions, (Texts{"a photo of a cat.", "cat"}));
  ASSERT_EQ(sample.image.pixels.size(), 3072U);
  EXPECT_EQ(sample.image.width, 32);
  for (const int at : {0, 1, 33, 1023})
    for (int c = 0; c < 3; ++c)
      EXPECT_EQ(sample.image.pixels[static_cast<std::size_t>(at * 3 + c)],
                static_cast<std::uint8_t>((c * 1024 + at) * 7 + 3));
  settings.split = "test";
  EXPECT_EQ(sample_error_of(*make_cifar(settings), 0),
            "bad_label: sample test_batch/0: its class index is 11, but there are 10 classes");
  write("c/cifar-10-batches-bin/test_batch.bin", std::string(3000, 'x'));
  EXPECT_EQ(error_of([&] { make_cifar(settings); }),
            path("c/cifar-10-batches-bin/test_batch.bin") +
                ": has 3000 bytes, which are not whole records of 3073: cut off, or not a CIFAR-10 file");
  settings.path = path("d");
  EXPECT_EQ(error_of([&] { make_cifar(settings); }), path("d") + ": no such file or folder");
  std::filesystem::create_directories(path("d"));
  EXPECT_EQ(error_of([&] { make_cifar(settings); }),
            path("d") +
                ": holds neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100); expected the archives' \"binary "
                "version\"");
}

TEST_F(Listings, Cifar100ReadsItsFineLabels) {
  std::string names;
  for (int i = 0; i < 100; ++i) names += "sea_creature_" + std::to_string(i) + "\n";
  write("c/fine_label_names.txt", names + "\n");
  write("c/train.bin", cifar_record("\x02\x63", 1));
  CifarSettings settings{.path = path("c")};
  const Sample sample = make_cifar(settings)->get(0);
  EXPECT_EQ(sample.label, 99);
  EXPECT_EQ(sample.captions, Texts{"a photo of a sea creature 99."});
  EXPECT_EQ(sample.image.pixels[3], 8);
}

TEST_F(Listings, Flickr30kReadsItsCaptionFiles) {
  write("p/10.jpg", noise_png(1));
  Flickr30kSettings settings{.images = path("p"), .captions = path("r.token")};
  write("r.token", "10.jpg#0\tOne #1 man .\n10.jpg#1\tTwo\n11.jpg#0\tThree\n");
  auto source = make_flickr30k(settings);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->get(0).captions, (Texts{"One #1 man .", "Two"}));
  write("split.txt", "10\n12\n");
  settings.split = path("split.txt");
  EXPECT_EQ(make_flickr30k(settings)->size(), 1);
  write("r.token", "10.jpg#0\tOne\n10.jpg Two\n10.jpg#2\tThree\n");
  EXPECT_EQ(make_flickr30k(settings)->captions(0), (Texts{"One", "Three"})) << "a wrong line is left out";
  write("r.token", "10.jpg Two\n");
  EXPECT_EQ(error_of([&] { make_flickr30k(settings); }),
            path("r.token") + ":1: expected IMAGE#NUMBER<tab>CAPTION, got \"10.jpg Two\"");
  write("r.csv", "image_name| comment_number| comment\n10.jpg| 0| A \"b\" .\n10.jpg| 4   A dog\n11.jpg| 0| C\n");
  settings.captions = path("r.csv");
  settings.split = "";
  source = make_flickr30k(settings);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->get(0).captions, Texts{"A \"b\" ."});
  EXPECT_EQ(error_of([] { make_flickr30k({}); }),
            "flickr30k: neither captions nor entities is set; expected results_20130124.token, or the folder of "
            "Flickr30k Entities");
}

TEST_F(Listings, Flickr30kEntitiesReadsPhrasesAndBoxes) {
  write("p/10.jpg", noise_png(1));
  write("p/11.jpg", noise_png(2));
  write("e/Sentences/10.txt",
        "[/EN#1/people Two men] near [/EN#0/notvisual it] in [/EN#3/scene the yard] hold [/EN#4/other/clothing a "
        "hat] .\n[/EN#1/people They] stand .\n");
  write("e/Annotations/10.xml",
        "<annotation>\n<filename>10.jpg</filename><size><width>500</width></size>\n"
        "<object>\n<name>1</name><name>9</name>\n<bndbox><xmin>10</xmin><ymin>20</ymin><xmax>30</xmax><ymax>60</ymax>"
        "</bndbox></object>\n<object><name>1</name><bndbox><xmin>25</xmin><ymin>5</ymin><xmax>40</xmax><ymax>50</ymax>"
        "</bndbox></object><object><name>3</name><scene>1</scene><nobndbox>1</nobndbox></object></annotation>");
  write("e/Sentences/11.txt", "[/EN#1 broken\n");
  write("e/Annotations/11.xml", "<annotation></annotation>");
  Flickr30kSettings settings{.images = path("p"), .entities = path("e")};
  const auto source = make_flickr30k(settings);
  ASSERT_EQ(source->size(), 2);
  const Sample sample = source->get(0);
  EXPECT_EQ(sample.captions, (Texts{"Two men near it in the yard hold a hat .", "They stand ."}));
  ASSERT_EQ(sample.objects.size(), 4U);
  EXPECT_EQ(sample.objects[0].phrase, "Two men");
  EXPECT_EQ(sample.objects[0].box, (std::array<std::int64_t, 4>{5, 10, 55, 30}));
  EXPECT_EQ(sample.objects[0].label, -1);
  EXPECT_EQ(sample.objects[1].phrase, "the yard");
  EXPECT_EQ(sample.objects[1].box, (std::array<std::int64_t, 4>{}));
  EXPECT_EQ(sample.objects[2].phrase, "a hat");
  EXPECT_EQ(sample.objects[2].caption, 0);
  EXPECT_EQ(sample.objects[3].phrase, "They");
  EXPECT_EQ(sample.objects[3].box, sample.objects[0].box) << "both phrases name the same entity";
  EXPECT_EQ(sample.objects[3].caption, 1);
  for (const ObjectAnnotation& object : sample.objects)
    EXPECT_EQ(sample.captions.at(static_cast<std::size_t>(object.caption))
                  .substr(static_cast<std::size_t>(object.span[0]),
                          static_cast<std::size_t>(object.span[1] - object.span[0])),
              object.phrase);
  EXPECT_EQ(sample_error_of(*source, 1),
            "bad_annotation: sample 11.jpg: a phrase of its Sentences file is malformed: [/EN#1 broken");
  write("e/Sentences/11.txt", "fine .\n");
  write("e/Annotations/11.xml",
        "<annotation><object><name>1</name><bndbox><xmin>a</xmin></bndbox></object></annotation>");
  EXPECT_EQ(sample_error_of(*source, 1),
            "bad_annotation: sample 11.jpg: a box of its Annotations file has no number xmin");
  EXPECT_EQ(source->captions(1), Texts{"fine ."}) << "captions come from the other file, which is intact";
  EXPECT_EQ(source->captions(0), sample.captions);
  EXPECT_EQ(source->caption_count(0), 2);
  EXPECT_EQ(source->captionless(), 0) << "the captions are read with the samples";
  std::filesystem::remove(path("e/Annotations/11.xml"));
  EXPECT_EQ(sample_error_of(*source, 1),
            "bad_annotation: sample 11.jpg: " + path("e/Annotations/11.xml") + ": no such file");
  std::filesystem::create_directory(path("e/Annotations/11.xml"));
  EXPECT_EQ(sample_error_of(*source, 1),
            "unreadable: sample 11.jpg: " + path("e/Annotations/11.xml") + ": is a folder, expected a file");
  std::filesystem::remove(path("e/Annotations/11.xml"));
  std::filesystem::create_symlink("/proc/self/mem", path("e/Annotations/11.xml"));  // reading this file fails with an I/O error
  EXPECT_TRUE(tessera::error_of([&] { source->get(1); }).starts_with(path("e/Annotations/11.xml") + ": cannot read: "))
      << "a failing disk concerns all samples and is worth another try";
  settings.entities = path("f");
  EXPECT_NE(error_of([&] { make_flickr30k(settings); }).find("no such file or folder"), std::string::npos);
}

TEST_F(Listings, AreCreatedByNameFromYaml) {
  const auto choice = [](const std::string& yaml) {
    return config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, "c.yaml"), "data.train", {});
  };
  write("a.png", noise_png(1));
  write("t.tsv", "filepath\ttitle\na.png\tx\n");
  EXPECT_EQ(sources().make(choice("{name: csv, path: " + path("t.tsv") + "}"), "data.train")->size(), 1);
  for (const char* name : {"coco_captions", "karpathy", "flickr30k", "cifar10"})
    EXPECT_NE(error_of([&] { sources().make(choice(std::string("{name: ") + name + "}"), "data.train"); }), "no error");
}

}  // namespace
}  // namespace tessera
