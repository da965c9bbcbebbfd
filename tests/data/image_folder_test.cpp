#include "src/data/sources/benchmarks.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/formats/data_files.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/base/log.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::noise_png;

class ImageFolders : public FolderTest {};

TEST_F(ImageFolders, TakesClassesFromSortedFolders) {
  write("f/zebra/deep/er/a.png", noise_png(1));
  write("f/ant_eater/b.png", noise_png(2));
  write("f/ant_eater/a.JPG", noise_png(3));
  write("f/ant_eater/a.txt", "one\n\ntwo\n");
  write("f/ant_eater/.hidden.png", noise_png(4));
  write("f/ignored.txt", "x");
  ImageFolderSettings settings{.path = path("f")};
  const auto source = make_image_folder(settings);
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"ant_eater", "zebra"}));
  EXPECT_EQ(source->get(0).captions, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(source->get(1).captions, std::vector<std::string>{"a photo of a ant eater."});
  EXPECT_EQ(source->get(2).key, "zebra/deep/er/a.png");
  EXPECT_EQ(source->get(2).label, 1);
  EXPECT_EQ(source->get(2).encoded, noise_png(1));
}

TEST_F(ImageFolders, ReadsFilesWrittenByImg2dataset) {
  write("f/00000/000000000.png", noise_png(1));
  write("f/00000/000000000.txt", "a red cat");
  write("f/00000/000000000.json", R"({"caption": "a red cat", "url": "http://x/0", "similarity": 0.31})");
  write("f/00001/000010000.png", noise_png(2));
  write("f/00001/000010000.json", R"({"caption": "a dog", "status": "success"})");
  write("f/00001/000010001.png", noise_png(3));
  write("f/00001/000010001.txt", "a bird");
  write("f/00001/000010001.json", "{");
  write("f/00000_stats.json", "{}");
  ImageFolderSettings settings{.path = path("f")};
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  const auto source = make_image_folder(settings);
  ASSERT_EQ(source->size(), 3);
  EXPECT_TRUE(source->class_names().empty());
  EXPECT_EQ(source->get(0).key, "00000/000000000.png");
  EXPECT_EQ(source->get(0).label, -1);
  EXPECT_EQ(source->get(0).captions, std::vector<std::string>{"a red cat"});
  EXPECT_EQ(source->get(0).fields, R"({"caption":"a red cat","similarity":0.31,"url":"http://x/0"})");
  EXPECT_EQ(source->get(1).captions, std::vector<std::string>{"a dog"});
  EXPECT_EQ(source->caption_count(1), 1);
  EXPECT_EQ(source->get(2).captions, std::vector<std::string>{"a bird"});
  EXPECT_EQ(source->get(2).fields, "");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(path("f") + ": its folders 00000 to 00001 are img2dataset's, not classes"), std::string::npos)
      << said;
  const std::size_t told = said.find(path("f/00001/000010001.json") + ": is not JSON");
  EXPECT_NE(told, std::string::npos) << said;
  EXPECT_EQ(said.find("is not JSON", told + path("f/00001/000010001.json").size() + 10), std::string::npos) << said;
}

TEST_F(ImageFolders, FoldersNamedByDigitsAreClassesUnlessImg2datasetWroteThem) {
  write("f/0/a.png", noise_png(1));
  write("f/7/b.png", noise_png(2));
  ImageFolderSettings settings{.path = path("f")};
  EXPECT_EQ(make_image_folder(settings)->class_names(), (std::vector<std::string>{"0", "7"}));
  settings.classes = false;
  EXPECT_TRUE(make_image_folder(settings)->class_names().empty());
  EXPECT_EQ(make_image_folder(settings)->size(), 2);
  settings.classes.reset();
  write("f/0/a.txt", "a caption");
  EXPECT_TRUE(make_image_folder(settings)->class_names().empty());
  settings.classes = true;
  EXPECT_EQ(make_image_folder(settings)->class_names(), (std::vector<std::string>{"0", "7"}));
  settings.classes.reset();
  write("f/zebra/c.png", noise_png(3));
  EXPECT_EQ(make_image_folder(settings)->class_names(), (std::vector<std::string>{"0", "7", "zebra"}));
}

TEST_F(ImageFolders, TheErrorForAnUnreadableImageNamesItsKey) {
  write("f/a/x.png", noise_png(1));
  write("f/a/y.png", "");
  ImageFolderSettings settings{.path = path("f")};
  EXPECT_TRUE(keyed_error_of([&] { make_image_folder(settings)->get(1); }).starts_with("empty_image a/y.png: "));
}

TEST_F(ImageFolders, LinksBackToAParentFolderAreNotFollowed) {
  write("f/cat/a.png", noise_png(1));
  write("f/cat/far/b.png", noise_png(2));
  write("f/dog/c.png", noise_png(3));
  write("elsewhere/d.png", noise_png(4));
  fs::create_directory_symlink("..", path("f/cat/loop"));
  fs::create_directory_symlink(".", path("f/cat/far/self"));
  fs::create_directory_symlink(path("f"), path("f/whole"));
  fs::create_directory_symlink(path("elsewhere"), path("f/dog/more"));
  fs::create_directory_symlink(path("f/dog"), path("elsewhere/back"));  // this link can be reached only through the link f/dog/more
  const ImageFolderSettings settings{.path = path("f") + "/"};
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  const auto source = make_image_folder(settings);
  const std::string said = testing::internal::GetCapturedStderr();
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < source->size(); ++i) keys.push_back(source->get(i).key);
  EXPECT_EQ(keys, (std::vector<std::string>{"cat/a.png", "cat/far/b.png", "dog/c.png", "dog/more/d.png"}));
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"cat", "dog"}));
  for (const char* link : {"f/cat/loop", "f/cat/far/self", "f/whole", "f/dog/more/back"}) {
    const std::size_t at = said.find(path(link) + ": links to ");
    ASSERT_NE(at, std::string::npos) << link << " in " << said;
    EXPECT_EQ(said.find(path(link), at + 1), std::string::npos) << said;
  }
}

TEST_F(ImageFolders, ReportsImagesNextToClassFoldersAsUnused) {
  write("f/cat/a.png", noise_png(1));
  write("f/b.png", noise_png(2));
  write("f/c.JPG", noise_png(3));
  write("f/.hidden.png", noise_png(3));
  const ImageFolderSettings settings{.path = path("f") + "/"};
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(make_image_folder(settings)->size(), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(path("f") + "/: 2 images are directly in it, next to class folders that hold images, and are "
                                  "not used\n"),
            std::string::npos)
      << said;
  fs::remove(path("f/cat/a.png"));
  EXPECT_EQ(make_image_folder(settings)->size(), 2);
}

TEST_F(ImageFolders, ReadsEveryEndingOfAnImageAndCountsOtherFiles) {
  for (const char* name : {"1.jpg", "2.jfif", "3.jpe", "4.JPEG", "5.apng", "7.pjp"})
    write(std::string("f/a/") + name, noise_png(1));
  write("f/a/1.txt", "a cat");
  for (const char* name : {"8.heic", "9.heic", "thumbs.db"}) write(std::string("f/a/") + name, "x");
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(make_image_folder({.path = path("f")})->size(), 6);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("3 files are not images and are left out: 1 .db and 2 .heic"), std::string::npos) << said;
}

TEST_F(ImageFolders, TextsAreFoundWithEndingsInAnyCase) {
  for (const char* name : {"f/a.png", "f/b.png", "f/c.png"}) write(name, noise_png(1));
  write("f/a.TXT", "one");
  write("f/b.Json", R"({"caption": "two"})");
  write("f/c.TXT", "other");
  write("f/c.txt", "three");
  write("texts/a.TXT", "four");
  const auto source = make_image_folder({.path = path("f")});
  EXPECT_EQ(source->get(0).captions, std::vector<std::string>{"one"});
  EXPECT_EQ(source->get(1).captions, std::vector<std::string>{"two"});
  EXPECT_EQ(source->get(2).captions, std::vector<std::string>{"three"});
  EXPECT_EQ(make_image_folder({.path = path("f"), .texts = path("texts")})->get(0).captions,
            std::vector<std::string>{"four"});
}

TEST_F(ImageFolders, PointersAndPagesAreNoCaptions) {
  for (const char* name : {"f/a.png", "f/b.png", "f/c.png"}) write(name, noise_png(1));
  write("f/a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
  write("f/b.json", "<!-- gone --><html>");
  write("f/c.txt", "404: Not Found");
  const auto source = make_image_folder({.path = path("f")});
  const std::string pointer = sample_error_of(*source, 0);
  EXPECT_TRUE(pointer.starts_with("bad_text: " + path("f/a.txt") + ": is not a text: ")) << pointer;
  EXPECT_NE(pointer.find("git lfs pull"), std::string::npos) << pointer;
  for (const int i : {1, 2}) EXPECT_TRUE(sample_error_of(*source, i).starts_with("bad_text: ")) << i;
}

TEST_F(ImageFolders, AByteOrderMarkIsNoPartOfATextOrAName) {
  write("f/a.png", noise_png(1));
  write("f/b.png", noise_png(2));
  write("f/b.txt", "\xEF\xBB\xBFother");
  write("f/captions.tsv",
        "\xEF\xBB\xBF"
        "a.png\tfirst\n");
  const auto source = make_image_folder({.path = path("f")});
  EXPECT_EQ(source->get(0).captions, std::vector<std::string>{"first"});
  EXPECT_EQ(source->get(1).captions, std::vector<std::string>{"other"});
  write("classes.txt",
        "\xEF\xBB\xBF"
        "cat\ndog\n");
  EXPECT_EQ(read_class_names(path("classes.txt")), (std::vector<std::string>{"cat", "dog"}));
}

TEST_F(ImageFolders, ReadsACaptionsFile) {
  write("f/a.png", noise_png(1));
  write("f/b.png", noise_png(2));
  write("f/captions.tsv", "file\tcaption\na.png\tfirst\r\nb.png\tother\na.png\tsecond\nc.png\tno such picture\n");
  ImageFolderSettings settings{.path = path("f")};
  const auto source = make_image_folder(settings);
  EXPECT_TRUE(source->class_names().empty());
  EXPECT_EQ(source->get(0).captions, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(source->get(0).label, -1);
  write("f/captions.tsv", "a.png\tin two\nlines\n");
  EXPECT_EQ(make_image_folder(settings)->captions(0), std::vector<std::string>{"in two"}) << "a wrong line is left out";
  write("f/captions.tsv", "file caption\n");
  EXPECT_EQ(
      error_of([&] { make_image_folder(settings); }),
      path("f/captions.tsv") + ": names no image of " + path("f") +
          " (line 1: expected IMAGE<tab>CAPTION, got no tab): expected names relative to the folder, such as a.png");
  write("f/captions.tsv", "h\tc\nq.png\tx\n");
  EXPECT_EQ(error_of([&] { make_image_folder(settings); }),
            path("f/captions.tsv") + ": names no image of " + path("f") +
                " (line 2: q.png): expected names relative to the folder, such as a.png");
  settings.path = path("g");
  EXPECT_EQ(error_of([&] { make_image_folder(settings); }), path("g") + ": no such file or folder");
  fs::create_directories(path("g"));
  EXPECT_EQ(error_of([&] { make_image_folder(settings); }),
            path("g") +
                ": holds no images (.jpg, .png, .webp, .gif, .bmp, .tif, ...), neither in folders named after classes nor directly");
}

}  // namespace
}  // namespace tessera
