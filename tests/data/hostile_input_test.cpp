// Tests malicious files. Fuzzing found some of these cases. The others are here because fuzzing would take too long to find them.
#include <gtest/gtest.h>

#include "src/base/digest.h"
#include "src/data/formats/regions.h"
#include "src/data/formats/paths.h"
#include "src/data/image/image_file.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/data/tokenizers/engine_tokenizers.h"
#include "src/io/tar.h"
#include "tests/data/images.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_of.h"
#include <tessera/data/image/transforms.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::string big_endian(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

std::string png_chunk(const std::string& type, const std::string& content) {
  return big_endian(static_cast<std::uint32_t>(content.size())) + type + content + big_endian(crc32(type + content));
}

TEST(HostileInput, APngMustStateItsSizeInItsFirstChunk) {
  // libpng skips unknown chunks anywhere. A reader that takes the unknown first chunk for the header would read a size of 1 x 1.
  const std::string png = test::encode(test::noise(40, 30, 1), ".png");
  const std::string lie = png.substr(0, 8) + png_chunk("teSt", big_endian(1) + big_endian(1) + "12345") + png.substr(8);
  EXPECT_EQ(sample_error_of([&] { decode_image(lie, 100); }).substr(0, 21), "bad_image: a PNG file");
}

TEST(HostileInput, APngMayEndInTheChecksumOfItsPixels) {
  const std::string png = test::encode(test::noise(40, 30, 1), ".png");
  const Image whole = decode_image(png, 10'000);
  for (const std::size_t cut : {12U + 1U, 12U + 4U})  // the end chunk has 12 bytes
    EXPECT_EQ(decode_image(png.substr(0, png.size() - cut), 10'000).pixels, whole.pixels) << cut;
  EXPECT_TRUE(
      sample_error_of([&] { decode_image(png.substr(0, png.size() - 100), 10'000); }).starts_with("bad_image: "));
}

TEST(HostileInput, AnImageThatIsAPointerOfGitLfsIsNamed) {
  const std::string error =
      sample_error_of([&] { decode_image("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", 100); });
  EXPECT_TRUE(error.starts_with("bad_image: ") && error.find("run git lfs pull") != std::string::npos) << error;
}

TEST(HostileInput, AJpegMustHaveOneSize) {
  // libjpeg skips garbage between markers, so it would ignore this fake frame header and decode with the real one that follows.
  const std::string jpeg = test::encode(test::noise(40, 30, 1), ".jpg");
  const std::string lie = jpeg.substr(0, 2) +
                          std::string("\xFF\x00\x00\x02\xFF\xC0\x00\x0B\x08\x00\x01\x00\x01\x01\x01\x11\x00", 17) +
                          jpeg.substr(2);
  EXPECT_EQ(sample_error_of([&] { decode_image(lie, 100); }).substr(0, 10), "bad_image:");
}

TEST(HostileInput, ADamagedJpegHeaderDoesNotAffectTheNextImage) {
  const Image in = test::noise(40, 30, 1);
  const std::string jpeg = test::encode(in, ".jpg");
  const std::size_t frame = jpeg.find(std::string("\xFF\xC0", 2));
  const std::string twice = jpeg.substr(0, frame + 19) + jpeg.substr(frame, 19) + jpeg.substr(frame + 19);
  const Image before = decode_image(jpeg);
  EXPECT_EQ(sample_error_of([&] { decode_image(twice); }).substr(0, 10), "bad_image:");
  EXPECT_EQ(decode_image(jpeg).pixels, before.pixels);
}

TEST(HostileInput, FileDescriptionsAreOneReadableLine) {
  EXPECT_EQ(read_image_header("text\xFF more").description, "text (\"text\xEF\xBF\xBD more\")");
  EXPECT_EQ(read_image_header(std::string("\0\0\0\x18"
                                          "ftypa\nb\xFF____",
                                          16))
                .description,
            "an ISO media file (a\\nb\xEF\xBF\xBD)");
}

TEST(HostileInput, NpyHeadersAreEscapedInErrors) {
  const auto npy = [](const std::string& header) {
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + std::string(1, '\0') + header;
  };
  EXPECT_EQ(sample_error_of([&] { read_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6\xFF\n,)}")); }),
            "bad_regions: the region features are not a .npy of [R, F] floats: its shape is (6\xEF\xBF\xBD\\n,)");
  EXPECT_EQ(sample_error_of([&] { read_npy(npy("{'descr': '<f\n4', 'fortran_order': False, 'shape': (6,)}")); }),
            "bad_regions: the region features are not a .npy of [R, F] floats: its type is '<f\\n4'");
}

TEST(HostileInput, BracesThatExpandToTooManyNamesAreRefused) {
  EXPECT_EQ(error_of([] { expand_braces("{0..9999}{0..9999}"); }),
            "{0..9999}{0..9999}: its braces stand for too many names: at most 1,000,000 are read");
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "{a}";
  EXPECT_EQ(error_of([&] { expand_braces(many); }).substr(200), ": more than 50 braces in one name");
}

class HostileFiles : public FolderTest {
 protected:
  const std::string path_ = path("a.tar");
};

TEST_F(HostileFiles, ATarWithOneKeyForAllFilesIsIndexed) {
  io::TarWriter writer(path_);
  constexpr int count = 5000;
  for (int i = 0; i < count; ++i) writer.add("IMG." + std::to_string(i) + ".jpg", "x");
  writer.add("IMG.7.jpg", "again");
  writer.finish();
  const ShardIndex index = index_shards({path_});
  ASSERT_EQ(index.samples.size(), 2U);
  EXPECT_EQ(index.samples[0].members.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(index.remarks.lines(1), std::vector<std::string>{"1 keys occur more than once; each occurrence is a sample of its own (first: " + path_ + ": IMG)"});
}

TEST_F(HostileFiles, ATarWithoutItsLastPaddingIsReported) {
  io::TarWriter writer(path_);
  writer.add("a.txt", "abc");
  writer.finish();
  const std::string whole = io::read_file(path_);
  io::write_file(path_, whole.substr(0, 512 + 3));
  const io::TarIndex index = io::index_tar(path_);
  EXPECT_EQ(index.members.size(), 1U);
  EXPECT_EQ(index.problem, "the archive ends in the middle of a block");
  EXPECT_EQ(index.problem_offset, 515U);
}

TEST_F(HostileFiles, MemberNamesAreEscapedInErrors) {
  io::TarWriter writer(path_);
  writer.add("a\n\xFF.txt", std::string(2000, 'x'));
  writer.finish();
  const std::string whole = io::read_file(path_);
  io::write_file(path_, whole.substr(0, 1000));
  EXPECT_EQ(io::index_tar(path_).problem, "the archive ends in the middle of a\\n\xEF\xBF\xBD.txt");
}

TEST_F(HostileFiles, AVocabularyThatDecompressesToTooMuchIsRefused) {
  // 4 MiB of zeros compress to 4 kB. Concatenated gzip files are one valid file, so 20 of them decompress to 80 MiB.
  if (!shell("head -c 4194304 /dev/zero | gzip > " + path("part.gz"))) GTEST_SKIP() << "gzip is not installed";
  const std::string part = io::read_file(path("part.gz"));
  std::string bomb;
  for (int i = 0; i < 20; ++i) bomb += part;
  EXPECT_EQ(error_of([&] { make_clip_bpe({}, {bomb}); }),
            "clip-bpe: vocabulary of the checkpoint: decompresses to more than 67108864 bytes: this is not a vocabulary");
}

}  // namespace
}  // namespace tessera
