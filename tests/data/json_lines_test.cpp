// Tests images listed in JSON lines files, and image folders that keep their texts in a second folder.

#include <gtest/gtest.h>

#include "src/data/sources/benchmarks.h"
#include "src/data/sources/tables.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

class JsonLines : public FolderTest {
 protected:
  JsonLines() {
    for (const char* name : {"pictures/test_0.jpg", "pictures/aar_1.jpg"})
      write(name, test::encode(test::noise(8, 9, 1), ".jpg"));
  }
  JsonLinesSettings settings(const std::string& content) const {
    write("data.jsonl", content);
    JsonLinesSettings out(PathList{{path("data.jsonl")}});
    out.images = path("pictures");
    return out;
  }
  std::string error_with(const JsonLinesSettings& given) const {
    return error_of([&] { make_json_lines(given); });
  }
};

TEST_F(JsonLines, ReadsOneSplitOfDocci) {
  JsonLinesSettings given =
      settings(R"({"split": "train", "image_file": "train_0.jpg", "description": "no"})"
               "\n\n"
               R"({"split": "test", "image_file": "test_0.jpg", "description": " A cat. It sleeps. "})"
               "\n");
  given.image_keys = {"image_file"};
  given.caption_keys = {"description"};
  given.split = "test";
  const auto source = make_json_lines(given);
  ASSERT_EQ(source->size(), 1);
  EXPECT_EQ(source->get(0).key, "test_0.jpg");
  EXPECT_EQ(source->get(0).captions, Texts{"A cat. It sleeps."});
  EXPECT_EQ(source->describe(), "json_lines " + path("data.jsonl") + " (test), 1 samples");
  given.split = "val";
  EXPECT_EQ(error_with(given), path("data.jsonl") + ": has no line with split \"val\"");
}

TEST_F(JsonLines, SentencesBecomeSeparateCaptions) {
  JsonLinesSettings given =
      settings(R"({"image/key": "aar_1", "IIW": "A cat. It sleeps.\n\nIn bed</s> Now", "more": ["x. y", 3]})");
  given.image_keys = {"image/key"};
  given.caption_keys = {"IIW", "more"};
  given.sentences = true;
  EXPECT_EQ(make_json_lines(given)->get(0).captions, (Texts{"A cat", "It sleeps", "In bed", "Now", "x", "y"}));
}

TEST_F(JsonLines, ErrorsNameTheLineAndItsMembers) {
  EXPECT_EQ(error_with(settings("{\"file\": \"y\"}\n")),
            path("data.jsonl") + ":1: has no image (image_keys); its members are: file");
  EXPECT_EQ(error_with(settings("{\"image\": \"test_0.jpg\", \"text\": \"x\"}\n")),
            path("data.jsonl") + ":1: has no caption (caption_keys); its members are: image and text");
  EXPECT_EQ(error_with(settings("[1]\n")), path("data.jsonl") + ":1: expected one JSON object per line");
  EXPECT_EQ(error_with(settings("{\"image\": 5, \"caption\": \"x\"}")),
            path("data.jsonl") + ":1: image (image_keys): expected a text, got number");
  EXPECT_EQ(error_with(settings("\n")), path("data.jsonl") + ": holds no lines");
}

TEST_F(JsonLines, ABadLineIsABadSample) {
  JsonLinesSettings given = settings(
      "{\"image\": \"test_0.jpg\", \"caption\": \"x\"}\n{\"image\": \"aar_1.jpg\"}\n{\"image\": \"aar_1.jpg\", "
      "\"caption\": null}\n"
      "{\"caption\": \"y\"}\n{\"image\": 7, \"caption\": \"y\"}\n{\"image\": \"test_0.jpg\", \"capt");
  const auto source = make_json_lines(given);
  ASSERT_EQ(source->size(), 6);
  EXPECT_EQ(source->get(0).captions, Texts{"x"});
  EXPECT_TRUE(source->get(1).captions.empty());
  EXPECT_TRUE(source->lacks_caption(1));
  EXPECT_TRUE(source->get(2).captions.empty());
  EXPECT_EQ(sample_error_of(*source, 3),
            "no_image: " + path("data.jsonl") + ":4: has no image (image_keys); its members are: caption");
  EXPECT_EQ(sample_error_of(*source, 4),
            "no_image: " + path("data.jsonl") + ":5: image (image_keys): expected a text, got number");
  EXPECT_EQ(sample_error_of(*source, 5), "bad_row: " + path("data.jsonl") + ":6: expected one JSON object per line");
  given.split = "test";
  EXPECT_EQ(error_with(given), path("data.jsonl") + ":6: expected one JSON object per line")
      << "no other line is of this split";
}

TEST_F(JsonLines, MissingImagesAreReportedWhenTheSourceIsCreated) {
  const std::string error = error_with(settings(R"({"image": "elsewhere.jpg", "caption": "x"})"));
  EXPECT_TRUE(error.ends_with("elsewhere.jpg): check the folder of the images")) << error;
}

TEST_F(JsonLines, WithoutAFolderImagesLieNextToTheirList) {
  write("pictures/a.jsonl", R"({"image": "test_0", "caption": "x"})");
  write("more/b.jsonl", R"({"image": "b.jpg", "caption": "y"})");
  write("more/b.jpg", test::encode(test::noise(8, 9, 2), ".jpg"));
  const auto source = make_json_lines(PathList{{path("pictures/a.jsonl"), path("more/b.jsonl")}});
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->get(0).key, "test_0.jpg");
  EXPECT_EQ(source->get(1).encoded, test::encode(test::noise(8, 9, 2), ".jpg"));
  EXPECT_EQ(source->name_of(1), path("more/b.jpg"));
}

TEST_F(JsonLines, CaptionsWithLineBreaksAreCounted) {
  testing::internal::CaptureStderr();
  make_json_lines(settings("{\"image\": \"test_0.jpg\", \"caption\": [\"a\\rb\", \"c\\nd\", \"e\"]}\n"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(path("data.jsonl") + ": 2 of 3 captions have line breaks; each is one caption"),
            std::string::npos)
      << said;
}

TEST_F(JsonLines, AnImageFolderMayHaveItsTextsInAnotherFolder) {
  write("caption/test_0.txt", "A long caption.\n");
  ImageFolderSettings given{.path = path("pictures"), .texts = path("caption")};
  const auto source = make_image_folder(given);
  ASSERT_EQ(source->size(), 2);
  EXPECT_TRUE(source->get(0).captions.empty()) << source->get(0).key;
  EXPECT_EQ(source->get(1).captions, Texts{"A long caption."});
  write("none/other.txt", "x");
  given.texts = path("none");
  EXPECT_EQ(error_of([&] { make_image_folder(given); }),
            path("none") + ": has no text for any image of " + path("pictures") + ": expected files such as aar_1.txt");
}

}  // namespace
}  // namespace tessera
