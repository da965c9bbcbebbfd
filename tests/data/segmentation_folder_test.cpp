#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/data/sources/benchmarks.h"
#include "tests/data/fake_source.h"
#include "tests/data/images.h"
#include "tests/data/temporary_folder.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::uint8_t>;

class SegmentationFolder : public FolderTest {
 protected:
  SegmentationFolder() {
    settings.path = folder_.string();
    settings.images = "pictures";
    settings.masks = "masks";
    settings.image_suffix = ".png";
    add("a", {0, 1, 2, 3, 254, 255});
    add("sub/b", {5, 5, 5, 5, 5, 5});
  }
  void add(const std::string& name, const Bytes& mask) {
    write("pictures/" + name + ".png", test::encode(test::noise(2, 3, 1), ".png"));
    write("masks/" + name + ".png", encode_mask(mask, 2, 3));
  }
  Bytes mask_of_a() const { return make_segmentation_folder(settings)->get(0).mask; }
  std::string error() const {
    return error_of([&] { make_segmentation_folder(settings); });
  }

  SegmentationFolderSettings settings;
};

TEST_F(SegmentationFolder, FindsImagesInFoldersOrInAList) {
  const auto all = make_segmentation_folder(settings);
  ASSERT_EQ(all->size(), 2);
  EXPECT_EQ(all->get(0).key, "pictures/a.png");
  EXPECT_EQ(all->get(1).key, "pictures/sub/b.png");
  EXPECT_EQ(all->get(1).mask, Bytes(6, 5));
  write("val.txt", "sub/b\r\n\n");
  settings.list = "val.txt";
  const auto listed = make_segmentation_folder(settings);
  ASSERT_EQ(listed->size(), 1);
  EXPECT_EQ(listed->get(0).key, "pictures/sub/b.png");
  EXPECT_EQ(listed->data_file(0).name, "val.txt") << "the list must be part of the data's identity";
}

TEST_F(SegmentationFolder, ValuesBecomeClasses) {
  EXPECT_EQ(mask_of_a(), (Bytes{0, 1, 2, 3, 254, 255}));
  settings.ignored_value = 3;
  EXPECT_EQ(mask_of_a(), (Bytes{0, 1, 2, 255, 254, 255}));
  settings.reduce_zero_label = true;
  EXPECT_EQ(mask_of_a(), (Bytes{255, 0, 1, 255, 253, 254}));
  settings.ignored_value = 255;
  EXPECT_EQ(mask_of_a(), (Bytes{255, 0, 1, 2, 253, 255}));
  settings.reduce_zero_label = false;
  settings.values = {2, 0};
  EXPECT_EQ(mask_of_a(), (Bytes{1, 255, 0, 255, 255, 255}));
}

TEST_F(SegmentationFolder, BadSamplesAreReported) {
  write("masks/a.png", encode_mask(Bytes(6, 0), 3, 2));
  const auto source = make_segmentation_folder(settings);
  EXPECT_EQ(sample_error_of(*source, 0),
            "bad_mask: sample pictures/a.png: its mask " + path("masks/a.png") + " is 3 x 2 pixels, its image 2 x 3");
  std::filesystem::remove(path("masks/sub/b.png"));
  EXPECT_EQ(sample_error_of(*source, 1),
            "bad_mask: sample pictures/sub/b.png: " + path("masks/sub/b.png") + ": no such file");
}

TEST_F(SegmentationFolder, MistakesAreReportedInOneLine) {
  settings.masks = "labels";
  EXPECT_EQ(error(), "segmentation_folder: there is no folder " + path("labels") +
                         ": set `path` to the data set's folder, and `masks` to the folder within it");
  settings.masks = "masks";
  settings.image_suffix = ".bmp";
  EXPECT_EQ(error(), "segmentation_folder: no file in " + path("pictures") + " ends in .bmp: set picture_suffix");
  settings.image_suffix = ".png";
  write("val.txt", "a\npictures/a.png masks/a.png\n");
  settings.list = "val.txt";
  EXPECT_EQ(error(), path("val.txt") +
                         ":2: expected the name of one sample, without suffix, got \"pictures/a.png "
                         "masks/a.png\"");
  settings.list = "";
  write("classes.txt", "cat\ndog\n");
  settings.classes = config::FilePath(path("classes.txt"));
  settings.values = {1, 2, 3};
  EXPECT_EQ(error(),
            path("classes.txt") + ": names 2 classes, but segmentation_folder.values lists 3: give one value for each");
  settings.values = {};
  settings.background_class = 2;
  EXPECT_EQ(error(),
            "segmentation_folder.background_class is 2, but " + path("classes.txt") + " names 2 classes (0 to 1)");
  settings.values = {4, 4};
  EXPECT_EQ(validate(settings)->text, "4 is listed twice: each value belongs to one class");
  settings.reduce_zero_label = true;
  EXPECT_EQ(validate(settings)->key, "reduce_zero_label");
}

}  // namespace
}  // namespace tessera
