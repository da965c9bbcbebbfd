#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>

#include "src/data/image/encode.h"
#include "src/data/packing/contact_sheet.h"
#include "src/data/packing/pack.h"
#include "src/data/shapes/shapes.h"
#include "src/io/tar.h"
#include "tests/data/images.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/data/image/transforms.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

class ShardWriter : public FolderTest {};

// Returns the name and content of each member, read at the offsets of the ustar format. Checks the headers' checksums.
std::vector<std::pair<std::string, std::string>> read_tar(const std::string& tar) {
  std::vector<std::pair<std::string, std::string>> members;
  for (std::size_t at = 0; tar[at] != '\0';) {
    const std::string header = tar.substr(at, 512);
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
    EXPECT_EQ(std::stoul(header.substr(148, 6), nullptr, 8), sum);
    const std::string prefix = header.c_str() + 345;
    const std::size_t size = std::stoul(header.substr(124, 11), nullptr, 8);
    members.emplace_back((prefix.empty() ? "" : prefix + "/") + std::string(header.c_str()).substr(0, 100),
                         tar.substr(at + 512, size));
    at += 512 + (size + 511) / 512 * 512;
  }
  return members;
}

TEST_F(ShardWriter, ShardsHoldAllFieldsAndDoNotDependOnThreads) {
  ShapesSettings shapes{.size = 25, .regions = true};
  const ShapesSource source(shapes);
  PackSettings settings{.folder = path("one"), .name = "train", .samples_per_shard = 10, .format = "png"};
  const std::vector<std::string> paths = pack(source, "", settings).shards;
  ASSERT_EQ(paths.size(), 3U);
  EXPECT_TRUE(paths[2].ends_with("/one/train-00002.tar"));
  settings.folder = path("three");
  settings.threads = 3;
  std::int64_t last = 0;
  const std::vector<std::string> again =
      pack(source, "", settings, [&](std::int64_t done, std::int64_t) { EXPECT_EQ(done, ++last); }).shards;
  EXPECT_EQ(last, 25);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(io::read_file(paths[i]), io::read_file(again[i]));

  const auto members = read_tar(io::read_file(paths[2]));
  ASSERT_EQ(members.size(), 5U * 8U);
  const Sample sample = source.get(20);
  std::map<std::string, std::string> files;
  for (std::size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(members[i].first.starts_with("train_00000020.")) << members[i].first;
    files[members[i].first.substr(15)] = members[i].second;
  }
  EXPECT_EQ(decode_image(files["png"]).pixels, sample.image.pixels);
  EXPECT_EQ(files["txt"], sample.captions[0]);
  EXPECT_EQ(files["cls"], std::to_string(sample.label));
  EXPECT_EQ(files["summary.txt"], sample.summary);
  EXPECT_EQ(files["objects.txt"], sample.object_tags);
  const cv::Mat mask =
      cv::imdecode(std::vector<char>(files["mask.png"].begin(), files["mask.png"].end()), cv::IMREAD_UNCHANGED);
  ASSERT_EQ(mask.type(), CV_8UC1);
  EXPECT_EQ(std::vector<std::uint8_t>(mask.datastart, mask.dataend), sample.mask);
  const auto json = nlohmann::json::parse(files["json"]);
  EXPECT_EQ(json["captions"].get<std::vector<std::string>>(), sample.captions);
  EXPECT_EQ(json["class"], source.class_names()[static_cast<std::size_t>(sample.label)]);
  ASSERT_EQ(json["objects"].size(), sample.objects.size());
  EXPECT_EQ(json["objects"][0]["phrase"], sample.objects[0].phrase);
  EXPECT_EQ(json["negatives"].size(), sample.negatives.size());
  const std::string& npy = files["regions.npy"];
  ASSERT_GT(npy.size(), sample.regions.size() * 4);
  EXPECT_EQ((npy.size() - sample.regions.size() * 4) % 64, 0U);
  EXPECT_EQ(std::memcmp(npy.data() + npy.size() - sample.regions.size() * 4, sample.regions.data(),
                        sample.regions.size() * 4),
            0);

  const std::string classes = io::read_file(path("one/classes.txt"));
  EXPECT_TRUE(classes.starts_with("circle\nsquare\n")) << classes;
  EXPECT_TRUE(classes.ends_with("\nmoon\nbackground\n")) << classes;
}

class FailingSource final : public IndexedSource {
 public:
  std::int64_t size() const override { return 100; }
  Sample get(std::int64_t index) const override {
    if (index == 57) throw UserError("sample 57 is broken");
    return ShapesSource({.size = 100}).get(index);
  }
  std::string describe() const override { return "failing"; }
};

TEST_F(ShardWriter, AFailureLeavesNoPartialShard) {
  const PackSettings settings{.folder = path("data"), .name = "train", .samples_per_shard = 50, .threads = 2};
  EXPECT_THROW(pack(FailingSource(), "", settings), UserError);
  for (const auto& entry : std::filesystem::directory_iterator(path("data")))
    EXPECT_TRUE(entry.path().filename() == "train-00000.tar" || entry.path().filename() == "train.json") << entry.path();
}

TEST_F(ShardWriter, LongNamesAreSplitOrRefused) {
  io::TarWriter tar(path("a.tar"));
  const std::string folder(90, 'd');
  tar.add(folder + "/" + std::string(60, 'f'), "x");
  EXPECT_THROW(tar.add(std::string(101, 'n'), "x"), UserError);
  tar.finish();
  const auto members = read_tar(io::read_file(path("a.tar")));
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(members[0].first, folder + "/" + std::string(60, 'f'));
  EXPECT_EQ(members[0].second, "x");
}

TEST(ContactSheet, ImagesAreEnlargedAndArrangedInRows) {
  ShapesSettings shapes;
  const ShapesSource source(shapes);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < 5; ++i) samples.push_back(source.get(i));
  const Image sheet = contact_sheet(samples, 3, 128);
  EXPECT_EQ(sheet.width, 3 * 138 + 10);
  const auto pixel = [](const Image& image, std::int64_t row, std::int64_t column) {
    return image.pixels[static_cast<std::size_t>(row * image.width + column) * 3];
  };
  EXPECT_EQ(pixel(sheet, 10, 10), pixel(samples[0].image, 0, 0));
  EXPECT_EQ(pixel(sheet, 10 + 127, 10 + 2 * 138 + 127), pixel(samples[2].image, 63, 63));
  EXPECT_EQ(pixel(sheet, sheet.height - 1, sheet.width - 1), 255);
}

TEST(ContactSheet, LettersLoseTheirAccentsAndOtherCharactersBecomeQuestionMarks) {
  Sample sample;
  sample.image = test::noise(16, 16, 1);
  const auto drawn = [&](const std::string& caption) {
    sample.captions = {caption};
    return contact_sheet({sample}, 1, 128).pixels;
  };
  EXPECT_EQ(drawn("caf\u00e9 \u00c5se"), drawn("cafe Ase"));
  EXPECT_EQ(drawn("e\u0301"), drawn("e")) << "a combining accent";
  EXPECT_EQ(drawn("\u732b \U0001F600x \uD55C"), drawn("? ?x ?"));
  EXPECT_EQ(drawn("a\xFF"), drawn("a?"));
  EXPECT_NE(drawn("?"), drawn("??"));
}

TEST(ContactSheet, LettersOfLatinAlphabetsAreTransliterated) {
  Sample sample;
  sample.image = test::noise(16, 16, 1);
  const auto drawn = [&](const std::string& caption) {
    sample.captions = {caption};
    return contact_sheet({sample}, 1, 256).pixels;
  };
  EXPECT_EQ(drawn("M\u00e4dchen Stra\u00dfe \u00d6l \u201eja\u201c"), drawn("Maedchen Strasse Oel \"ja\""));
  EXPECT_EQ(drawn("a\u0308"), drawn("ae")) << "a letter and a combining mark";
  EXPECT_EQ(drawn("\u0142\u00f3d\u017a na\u00efve \u00f1"), drawn("lodz naive n"));
  EXPECT_EQ(undrawable_characters({sample}), 0);
  sample.captions = {"a \u732b\u732b", "\u732b is not drawn"};
  EXPECT_EQ(undrawable_characters({sample, sample}), 4);
}

}  // namespace
}  // namespace tessera
