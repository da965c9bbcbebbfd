// Runs each segmentation suite on a miniature data set, which has the layout of the suite's data set and three small images with generated
// masks.
#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "tests/evaluation/evaluate_fixture.h"

namespace tessera {
namespace {

struct Layout {
  const char* suite;
  const char* image;  // path of an image; NAME stands for the sample's name
  const char* mask;
  const char* list;                  // path of the list of samples; empty if there is none
  std::vector<std::uint8_t> values;  // pixel values of masks; the last one marks ignored pixels
};

const std::vector<Layout> kLayouts = {
    {"voc20", "JPEGImages/NAME.jpg", "SegmentationClass/NAME.png", "ImageSets/Segmentation/val.txt", {1, 20, 0, 255}},
    {"voc21", "JPEGImages/NAME.jpg", "SegmentationClass/NAME.png", "ImageSets/Segmentation/val.txt", {0, 1, 20, 255}},
    {"context59",
     "JPEGImages/NAME.jpg",
     "SegmentationClassContext/NAME.png",
     "ImageSets/SegmentationContext/val.txt",
     {1, 59, 0}},
    {"context60",
     "JPEGImages/NAME.jpg",
     "SegmentationClassContext/NAME.png",
     "ImageSets/SegmentationContext/val.txt",
     {0, 59, 255}},
    {"ade20k", "images/validation/ADE_val_NAME.jpg", "annotations/validation/ADE_val_NAME.png", "", {1, 150, 0}},
    {"coco_stuff", "val2017/NAME.jpg", "stuffthingmaps/val2017/NAME.png", "", {0, 12, 181, 255}},
    {"cityscapes",
     "leftImg8bit/val/lindau/NAME_leftImg8bit.png",
     "gtFine/val/lindau/NAME_gtFine_labelIds.png",
     "",
     {7, 33, 26, 0}},
};

class SegmentationSuites : public Evaluate {
 protected:
  static std::string named(std::string pattern, const std::string& name) {
    return pattern.replace(pattern.find("NAME"), 4, name);
  }
  void write(const std::string& name, const std::string& content) const {
    const fs::path path = root / name;
    fs::create_directories(path.parent_path());
    io::write_file(path.string(), content);
  }
  void write_sample(const Layout& layout, const std::string& name, std::int64_t height, std::int64_t width) const {
    Image image{height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * height * width))};
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(height * width));
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = layout.values[i * layout.values.size() / mask.size()];
    const std::string picture = named(layout.image, name);
    write(picture, picture.ends_with(".png") ? encode_png(image) : encode_jpeg(image, 90));
    write(named(layout.mask, name), encode_mask(mask, height, width));
  }
  void write_layout(const Layout& layout) {
    root = folder_ / layout.suite;
    write_sample(layout, "0001", 40, 60);
    write_sample(layout, "0002", 60, 40);
    write_sample(layout, "0003", 33, 33);
    if (*layout.list != '\0') write(layout.list, "0001\n0003\n0002\n");
    options.suite = concat(TESSERA_SOURCE_DIR "/configs/suites/", layout.suite, ".yaml");
    options.out = path("out");
    options.overrides = {"source.path=" + root.string(), "tasks.0.templates=[\"a {}\"]",
                         "tasks.1.templates=[\"a {}\"]", "tasks.1.windows={short_side: 48, size: 32, stride: 16}",
                         "tasks.0.last_block=naclip",    "tasks.1.last_block=clearclip"};
  }

  fs::path root;
};

TEST_F(SegmentationSuites, EachReadsTheLayoutOfItsDataSet) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.suite);
    write_layout(layout);
    EXPECT_EQ(run(), 0);
    const nlohmann::json json = results();
    ASSERT_EQ(json.at("tasks").size(), 2U);
    for (const auto& task : json.at("tasks")) {
      EXPECT_EQ(task.at("samples"), 3);
      EXPECT_TRUE(task.at("skipped").empty()) << task.at("skipped");
      const double accuracy = task.at("metrics").at("pixel_accuracy");
      EXPECT_GT(accuracy, -1e-9);
      EXPECT_LE(accuracy, 1);
      EXPECT_EQ(task.at("metrics").contains("dataset_miou_with_background"),
                std::string(layout.suite).ends_with("1") || std::string(layout.suite).ends_with("60"));
    }
  }
}

TEST_F(SegmentationSuites, SkipAndReportAMaskOfAnotherSize) {
  write_layout(kLayouts[0]);
  // This mask has as many pixels as its image, but another height and width.
  write(named(kLayouts[0].mask, "0003"), encode_mask(std::vector<std::uint8_t>(11 * 99, 1), 11, 99));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(), 0);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(told, "sample JPEGImages/0003.jpg: its mask"));
  EXPECT_TRUE(contains(told, "is 11 x 99 pixels, its image 33 x 33"));
  for (const auto& task : results().at("tasks")) {
    EXPECT_EQ(task.at("samples"), 2);
    EXPECT_EQ(task.at("skipped").at("bad_mask"), 1);
  }
}

TEST_F(SegmentationSuites, NameTheSampleOfAValueWithoutAClass) {
  Layout layout = kLayouts[1];
  layout.values = {0, 21, 255};
  write_layout(layout);
  EXPECT_EQ(error(), concat("the mask of sample JPEGImages/0001.jpg of segmentation_folder ", root.string(),
                            " ImageSets/Segmentation/val.txt, 3 samples holds class 21, but there are only 21 class "
                            "names (0 to 20): list one for each value in segmentation.classes"));
}

TEST_F(SegmentationSuites, RejectAnotherNumberOfClasses) {
  write_layout(kLayouts[0]);
  options.overrides.push_back("tasks.0.classes=[cat, dog]");
  options.overrides.push_back("tasks.1.classes=[cat, dog]");
  EXPECT_EQ(error(),
            concat("segmentation.classes lists 2 classes, but segmentation_folder ", root.string(),
                   " ImageSets/Segmentation/val.txt, 3 samples has 20: list one for each, in the data's order"));
}

TEST_F(SegmentationSuites, RejectAWindowThatDoesNotFitThePatches) {
  write_layout(kLayouts[0]);
  options.overrides.push_back("tasks.1.windows.size=30");
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(results().at("failed").at(0).at("reason"),
            "segmentation.windows.size is 30, but this model's patches are 8 x 8: take a multiple, such as 24");
}

}  // namespace
}  // namespace tessera
