#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/image/encode.h"
#include "src/data/image/orientation.h"
#include "src/data/packing/pack.h"
#include "src/data/packing/pack_sample.h"
#include "src/data/shapes/shapes.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "tests/data/fake_source.h"
#include "tests/support/temporary_folder.h"
#include <tessera/data/image/transforms.h>
#include <tessera/data/stream.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

class Pack : public FolderTest {
 protected:
  PackSettings settings(const std::string& folder, std::int64_t per_shard = 7) const {
    return {.folder = path(folder), .samples_per_shard = per_shard, .threads = 2};
  }

  std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder)))
      out[entry.path().filename().string()] = io::read_file(entry.path().string());
    return out;
  }

  std::shared_ptr<const IndexedSource> packed(const std::string& folder) const {
    WebDatasetSettings webdataset;
    webdataset.path = {{path(folder + "/shard-*.tar")}};
    return indexed(make_webdataset(webdataset));
  }
};

std::vector<Sample> samples_with_bad_ones() {
  std::vector<Sample> samples = make_samples(40);
  samples[5].encoded = "<html>";
  samples[6].encoded = "";
  samples[13].captions = {"caf\xE9", " "};
  samples[20].captions = {"caf\xE9", " ", "coffee "};
  samples[21].key = "a/b.c/pic.name.JPG";
  return samples;
}

std::string compute_fingerprint(const IndexedSource& source) {
  SetFingerprint out;
  for (std::int64_t i = source.size(); i-- > 0;) {
    const Sample sample = source.get(i);
    out.add(sample.key, compute_digest(sample));
  }
  return out.text();
}

TEST_F(Pack, ReadsBackEqualWithoutTheBadSamples) {
  const MemorySource source(samples_with_bad_ones());
  const PackResult result = pack(source, "", settings("a"));
  EXPECT_EQ(result.samples, 37);
  EXPECT_EQ(result.shards.size(), 6U);
  EXPECT_EQ(result.bad, (std::map<std::string, std::int64_t>{{"bad_image", 1}, {"no_image", 1}, {"not_utf8", 1}}));
  const auto read = packed("a");
  ASSERT_EQ(read->size(), 37);
  const Sample first = read->get(0), given = source.get(0);
  EXPECT_EQ(first.key, given.key);
  EXPECT_EQ(first.encoded, given.encoded) << "the original bytes of the file must be kept";
  EXPECT_EQ(first.captions, given.captions);
  EXPECT_EQ(first.label, given.label);
  EXPECT_EQ(read->get(17).captions, std::vector<std::string>{"coffee"});
  EXPECT_EQ(read->get(18).key, "a/b.c/pic_name");
  EXPECT_EQ(compute_fingerprint(*read), result.fingerprint);
  const auto manifest = nlohmann::json::parse(io::read_file(result.manifest));
  EXPECT_EQ(manifest["complete"], true);
  EXPECT_EQ(manifest["shards"][0]["samples"], 7);
  EXPECT_EQ(manifest["shards"][0]["end"], 9);  // samples 5 and 6 are bad
  EXPECT_EQ(manifest["bad_samples"][1]["key"], "6");
}

nlohmann::json fields_of(const IndexedSource& source, std::int64_t index) {
  return nlohmann::json::parse(source.get(index).fields);
}

TEST_F(Pack, SideFieldsAreKeptAndMatchTheImageAndTheCaptions) {
  std::vector<Sample> samples = make_samples(3);
  const Image image = decode_image(samples[0].encoded);
  const nlohmann::json given = {{"url", "http://a/b.jpg"},  {"similarity", 0.31},
                                {"sha256", "00ff"},         {"width", image.width},
                                {"height", image.height}, {"caption", samples[0].captions[0]}};
  for (Sample& sample : samples) sample.fields = given.dump();
  samples[1].captions = {"written anew"};
  samples[2].fields.clear();
  PackSettings small = settings("a");
  small.resize = std::min(image.width, image.height) / 2;
  pack(MemorySource(samples), "", small);
  const auto read = packed("a");
  const nlohmann::json first = fields_of(*read, 0), second = fields_of(*read, 1);
  for (const char* name : {"url", "similarity", "sha256", "caption"})
    EXPECT_EQ(first.value(name, nlohmann::json()), given[name]) << name;
  const Image shrunk = decode_image(read->get(0).encoded);
  EXPECT_LT(shrunk.width, image.width);
  EXPECT_EQ(first["width"], shrunk.width);
  EXPECT_EQ(first["height"], shrunk.height);
  EXPECT_EQ(read->get(0).captions, samples[0].captions) << "caption and captions must agree";
  EXPECT_EQ(read->get(1).captions, samples[1].captions);
  EXPECT_EQ(second["original_caption"], given["caption"]);
  EXPECT_FALSE(fields_of(*read, 2).contains("url"));
  pack(*read, "", settings("again"));
  EXPECT_EQ(fields_of(*packed("again"), 1), second);
}

TEST_F(Pack, AResizedImageKeepsItsOrientationAndFollowsGrayRange) {
  std::vector<Sample> samples = make_samples(2);
  const Image image = decode_image(samples[0].encoded);
  samples[0].encoded = with_orientation(encode_jpeg(image, 95), 6);
  samples[1].encoded = encode_depth(std::vector<float>(64, 2000), 8, 8, 1);  // a 16-bit gray PNG of the value 2000
  for (const char* format : {"jpg", "png"}) {
    PackSettings small = settings(format);
    small.format = format;
    small.resize = 4;
    small.gray_range = 4095;
    pack(MemorySource(samples), "", small);
    const std::string turned = packed(format)->get(0).encoded;
    EXPECT_EQ(exif_orientation(turned, read_image_header(turned).kind), 6) << format;
    EXPECT_EQ(decode_image(turned).width < decode_image(turned).height, image.width < image.height)
        << "the pixels are not turned";
    EXPECT_NEAR(decode_image(packed(format)->get(1).encoded).pixels[0], 2000 / 16, 1) << format;
  }
}

TEST_F(Pack, AnnotationsAndMasksReadBackEqualAndTheFingerprintIgnoresSharding) {
  ShapesSettings shapes{.size = 12, .regions = true};
  const ShapesSource source(shapes);
  PackSettings png = settings("a");
  png.format = "png";
  const PackResult result = pack(source, "", png);
  const auto read = packed("a");
  for (std::int64_t i = 0; i < 12; ++i) {
    const Sample there = read->get(i), given = source.get(i);
    EXPECT_EQ(decode_image(there.encoded).pixels, given.image.pixels);
    EXPECT_EQ(there.mask, given.mask);
    EXPECT_EQ(there.captions, given.captions);
    EXPECT_EQ(there.regions, given.regions);
    ASSERT_EQ(there.objects.size(), given.objects.size());
    EXPECT_EQ(there.objects[0].box, given.objects[0].box);
    EXPECT_EQ(there.objects[0].phrase, given.objects[0].phrase);
  }
  EXPECT_EQ(read->class_names(), source.class_names());
  // Packs the samples of these shards again, into larger shards. In these samples, masks are decoded and images are encoded.
  PackSettings again = settings("b", 1000);
  EXPECT_EQ(pack(*read, "", again).fingerprint, result.fingerprint);
  EXPECT_EQ(packed("b")->get(3).mask, source.get(3).mask);
}

TEST_F(Pack, PacksAStreamAndResumesInTheMiddleOfOne) {
  const MemorySource source(make_samples(20));
  const PackResult first = pack(source, "", settings("a", 6));
  WebDatasetSettings piped;
  piped.path = {{"pipe:cat " + path("a/shard-0000{0..3}.tar")}};
  const std::shared_ptr<Source> stream = make_webdataset(piped);
  EXPECT_EQ(pack(*stream, "", settings("whole")).fingerprint, first.fingerprint);
  struct Broken {};
  EXPECT_THROW(pack(*stream, "", settings("halves"),
                    [](std::int64_t done, std::int64_t) {
                      if (done == 16) throw Broken();
                    }),
               Broken);
  EXPECT_EQ(files("halves").count("shard-00001.tar"), 1u);
  pack(*stream, "", settings("halves"));
  EXPECT_EQ(files("halves"), files("whole"));
}

TEST_F(Pack, DoesNotDependOnThreads) {
  const MemorySource source(samples_with_bad_ones());
  PackSettings one = settings("a"), five = settings("b");
  one.threads = 1;
  five.threads = 5;
  pack(source, "", one);
  pack(source, "", five);
  EXPECT_EQ(files("a"), files("b"));
}

TEST_F(Pack, ResumesAfterAnInterruptionWithTheSameResult) {
  const MemorySource source(samples_with_bad_ones());
  pack(source, "", settings("whole"));
  for (const int killed_at : {3, 8, 9, 10, 25, 39}) {
    const std::string name = "at" + std::to_string(killed_at);
    EXPECT_THROW(pack(source, "", settings(name),
                      [&](std::int64_t done, std::int64_t) {
                        if (done == killed_at) throw std::runtime_error("killed");
                      }),
                 std::runtime_error);
    write(name + "/shard-00003.tar.tmp.17", "what a killed process leaves");
    write(name + "/shard.json.tmp.17", "and here");
    std::int64_t begun = -1;
    pack(source, "", settings(name), [&](std::int64_t, std::int64_t at) { begun = at; });
    EXPECT_GE(begun, killed_at - 9);
    EXPECT_LE(begun, killed_at);
    EXPECT_EQ(files(name), files("whole")) << killed_at;
  }
  int called = 0;
  pack(source, "", settings("whole"), [&](std::int64_t, std::int64_t) { ++called; });
  EXPECT_EQ(called, 0) << "a complete pack must not read samples";
}

TEST_F(Pack, RefusesToMixTwoPacks) {
  const MemorySource source(make_samples(20));
  pack(source, "", settings("a"));
  const std::string manifest = path("a/shard.json");
  EXPECT_EQ(
      error_of([&] { pack(source, "", settings("a", 8)); }),
      manifest + ": was started with samples_per_shard: 7, now 8: name another folder, or remove the shards of shard");
  PackSettings two = settings("a");
  two.quality = 90;
  two.format = "png";
  EXPECT_EQ(error_of([&] { pack(source, "", two); }),
            manifest +
                ": was started with quality: 95, now 90 and format: jpg, now png: name another folder, or "
                "remove the shards of shard");
  EXPECT_EQ(error_of([&] { pack(MemorySource(make_samples(21)), "", settings("a")); }),
            manifest + ": was started with another source: name another folder, or remove the shards of shard");
  std::filesystem::resize_file(path("a/shard-00001.tar"), 100);
  EXPECT_EQ(error_of([&] { pack(source, "", settings("a")); }),
            path("a/shard-00001.tar") + ": has another size, but " + manifest +
                " lists it as complete: remove all of shard and start again");
  std::filesystem::remove(manifest);
  EXPECT_NE(error_of([&] { pack(source, "", settings("a")); }).find("exists already"), std::string::npos);
}

TEST_F(Pack, SetsInOneFolderMayHaveNamesThatBeginAlike) {
  const MemorySource source(make_samples(3));
  PackSettings small = settings("a"), whole = settings("a");
  small.name = "cc-small";
  whole.name = "cc";
  pack(source, "", small);
  const std::string running = write("a/cc-small-00001.tar.tmp.17", "what a running pack writes");
  pack(source, "", whole);
  EXPECT_TRUE(std::filesystem::exists(running));
}

/// A source whose samples have the labels 0, 1 and 2 of these classes.
class NamedClasses : public MemorySource {
 public:
  explicit NamedClasses(std::vector<std::string> names) : MemorySource(make_samples(3)), names_(std::move(names)) {}
  std::vector<std::string> class_names() const override { return names_; }

 private:
  std::vector<std::string> names_;
};

TEST_F(Pack, SetsInOneFolderHaveTheSameClasses) {
  PackSettings train = settings("a"), validation = settings("a");
  train.name = "train";
  validation.name = "validation";
  pack(NamedClasses({"ant", "bee", "cat"}), "", train);
  EXPECT_EQ(error_of([&] { pack(NamedClasses({"bee", "cat", "dog"}), "", validation); }),
            path("a/classes.txt") +
                ": lists other classes, which shards in this folder may use: name another folder, or remove this file");
  pack(NamedClasses({"ant", "bee", "cat"}), "", validation);
  EXPECT_EQ(files("a").at("classes.txt"), "ant\nbee\ncat\n");
}

TEST_F(Pack, ShardsStayBelowBytesPerShard) {
  PackSettings small = settings("a", 1000);
  small.bytes_per_shard = 20'000;
  const PackResult result = pack(MemorySource(make_samples(40)), "", small);
  EXPECT_GT(result.shards.size(), 3U);
  std::int64_t total = 0;
  for (const std::string& shard : result.shards) {
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(shard));
    EXPECT_LE(size, 20'000);
    if (shard != result.shards.back()) {
      EXPECT_GT(size, 12'000);
    }
    total += size;
  }
  EXPECT_EQ(total, result.bytes);
  EXPECT_EQ(packed("a")->size(), 40);
}

TEST_F(Pack, ResizesLargerImagesWithTheirMasksDepthsAndBoxes) {
  std::vector<Sample> samples = make_samples(2);
  samples[0].encoded = test::encode(test::noise(60, 90, 1), ".png");
  samples[0].mask.assign(60 * 90, 1);
  std::fill_n(samples[0].mask.begin(), 30 * 90, std::uint8_t{2});
  samples[0].depth.assign(60 * 90, 2.5F);
  std::fill_n(samples[0].depth.begin(), 30 * 90, 1.125F);
  samples[0].depth[0] = 0;
  samples[0].objects = {{0, {10, 20, 30, 40}, "a", {0, 1}}};
  PackSettings half = settings("a");
  half.resize = 30;
  pack(MemorySource(samples), "", half);
  const Sample first = packed("a")->get(0);
  const Image image = decode_image(first.encoded);
  EXPECT_EQ(image.height, 30);
  EXPECT_EQ(image.width, 45);
  ASSERT_EQ(first.mask.size(), 30U * 45);
  EXPECT_EQ(first.mask[14 * 45], 2);
  EXPECT_EQ(first.mask[15 * 45], 1);
  ASSERT_EQ(first.depth.size(), 30U * 45);
  EXPECT_EQ(first.depth[14 * 45], 1.125F);
  EXPECT_EQ(first.depth[15 * 45], 2.5F);
  EXPECT_EQ(first.objects[0].box, (std::array<std::int64_t, 4>{5, 10, 15, 20}));
  EXPECT_EQ(packed("a")->get(1).encoded, samples[1].encoded) << "20 x 24 is small enough";
}

TEST_F(Pack, ResizingKeepsSmallBoxesInsideTheImage) {
  std::vector<Sample> samples = make_samples(1);
  samples[0].encoded = test::encode(test::noise(40, 60, 1), ".png");
  samples[0].objects = {{0, {10, 10, 1, 1}, "a", {}}, {0, {39, 59, 1, 1}, "b", {}}, {0, {}, "c", {}}};
  PackSettings quarter = settings("a");
  quarter.resize = 10;
  pack(MemorySource(samples), "", quarter);
  const Sample read = packed("a")->get(0);
  ASSERT_EQ(read.objects.size(), 3U);
  EXPECT_EQ(read.objects[0].box, (std::array<std::int64_t, 4>{3, 3, 1, 1}));
  EXPECT_EQ(read.objects[1].box, (std::array<std::int64_t, 4>{9, 14, 1, 1}));
  EXPECT_EQ(read.objects[2].box, (std::array<std::int64_t, 4>{})) << "it has no box";
}

TEST_F(Pack, DepthsKeepTheUnitsOfTheirSource) {
  class Kitti : public MemorySource {
   public:
    using MemorySource::MemorySource;
    double depth_units() const override { return 256; }
  };
  std::vector<Sample> samples = make_samples(1);
  samples[0].depth.assign(20 * 24, 20001 / 256.0F);  // 78 m
  samples[0].depth[0] = 1 / 256.0F;
  const PackResult result = pack(Kitti(samples), "", settings("a"));
  WebDatasetSettings reading;
  reading.path = {{path("a/shard-*.tar")}};
  reading.depth_units = 256;
  const auto read = indexed(make_webdataset(reading));
  EXPECT_EQ(read->get(0).depth, samples[0].depth);
  EXPECT_EQ(compute_fingerprint(*read), result.fingerprint);
  EXPECT_EQ(pack(*read, "", settings("again")).fingerprint, result.fingerprint);
  const auto millimeters = std::make_shared<MemorySource>(samples);
  EXPECT_EQ(Mixture(MixtureMode::concat, {{"a", millimeters, 1.0}, {"b", read, 1.0}}).depth_units(), 256);
}

TEST_F(Pack, DepthsAreKeptToTheMillimeter) {
  std::vector<Sample> samples = make_samples(2);
  samples[0].depth.assign(20 * 24, 0);
  for (std::size_t i = 0; i < samples[0].depth.size(); ++i) samples[0].depth[i] = static_cast<float>(i) / 7;
  samples[0].depth.back() = 100;
  pack(MemorySource(samples), "", settings("a"));
  const std::vector<float> read = packed("a")->get(0).depth;
  ASSERT_EQ(read.size(), samples[0].depth.size());
  EXPECT_EQ(read[0], 0);
  for (std::size_t i = 0; i + 1 < read.size(); ++i) EXPECT_NEAR(read[i], std::min(static_cast<float>(i) / 7, 65.535F), 0.00051);
  EXPECT_EQ(read.back(), 65.535F) << "the maximum of 16 bits";
  EXPECT_TRUE(packed("a")->get(1).depth.empty());

  WebDatasetSettings streamed;
  streamed.path = {{"pipe:cat " + path("a/shard-*.tar")}};
  const std::shared_ptr<const Source> source = make_webdataset(streamed);
  EXPECT_EQ(std::get<const StreamSource*>(source->kind())->open({.shuffle = false})->next()().depth, read);
}

TEST_F(Pack, PhrasesStayWithTheirCaptions) {
  std::vector<Sample> samples = make_samples(1);
  samples[0].captions = {"a dog", " ", "two cats"};
  samples[0].objects = {{0, {}, "a dog", {0, 5}, 0}, {0, {}, "", {0, 1}, 1}, {0, {}, "cats", {4, 8}, 2}};
  pack(MemorySource(samples), "", settings("a"));
  const Sample read = packed("a")->get(0);
  EXPECT_EQ(read.captions, (std::vector<std::string>{"a dog", "two cats"}));
  ASSERT_EQ(read.objects.size(), 3U);
  EXPECT_EQ(read.objects[0].caption, 0);
  EXPECT_EQ(read.objects[1].span, (std::array<std::int64_t, 2>{})) << "its caption is left out";
  EXPECT_EQ(read.objects[2].caption, 1);
  EXPECT_EQ(read.objects[2].span, (std::array<std::int64_t, 2>{4, 8}));
}

TEST_F(Pack, SummarizeAddsMissingSummaries) {
  std::vector<Sample> samples = make_samples(3);
  samples[0].captions = {"A horse (photo by Ann) on a meadow."};
  samples[1].captions = {"A horse on a meadow."};
  samples[1].summary = "its own";
  samples[2].captions = {"..."};
  const MemorySource source(samples);
  PackSettings with = settings("with");
  with.summarize = true;
  pack(source, "", with);
  pack(source, "", settings("without"));
  const auto summaries = [&](const std::string& folder) {
    const auto read = packed(folder);
    return std::vector<std::string>{read->get(0).summary, read->get(1).summary, read->get(2).summary};
  };
  EXPECT_EQ(summaries("with"), (std::vector<std::string>{"A horse on a meadow", "its own", ""}));
  EXPECT_EQ(summaries("without"), (std::vector<std::string>{"", "its own", ""}));
}

TEST_F(Pack, TooManyBadSamplesStopThePack) {
  std::vector<Sample> samples = make_samples(200);
  for (std::size_t i = 0; i < samples.size(); i += 2) samples[i].encoded = "junk";
  EXPECT_EQ(error_of([&] { pack(MemorySource(samples), "", settings("a")); }),
            "memory, 200 samples: 51 of the first 101 samples cannot be used (51 bad_image), more than max_bad_share "
            "0.1 allows (--max-bad-share 0.7 allows more, tessera-data inspect counts all of them); this one: sample "
            "100: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are text (\"junk\")");
  PackSettings more = settings("a");
  more.max_bad_share = 0.7;
  EXPECT_EQ(pack(MemorySource(samples), "", more).samples, 100) << "the stopped pack must continue with another share";
}

TEST_F(Pack, TheShareOfBadSamplesIsAlsoCheckedAtTheEnd) {
  std::vector<Sample> samples = make_samples(20);
  for (const std::size_t i : {4, 9, 14}) samples[i].encoded = "junk";
  const std::string text =
      "memory, 20 samples: 3 of the 20 samples cannot be used (3 bad_image), more than max_bad_share 0.1 allows "
      "(--max-bad-share 0.2 allows more, tessera-data inspect counts all of them); the first one: sample 4: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are text (\"junk\")";
  const MemorySource source(samples);
  EXPECT_EQ(error_of([&] { pack(source, "", settings("a")); }), text);
  EXPECT_EQ(nlohmann::json::parse(io::read_file(path("a/shard.json")))["complete"], false);
  EXPECT_EQ(error_of([&] { pack(source, "", settings("a")); }), text) << "a resumed pack must fail in the same way";
  PackSettings exact = settings("b");
  exact.max_bad_share = 0.15;
  EXPECT_EQ(pack(source, "", exact).samples, 17);
}

TEST_F(Pack, AShareOfZeroStopsAtTheFirstBadSample) {
  std::vector<Sample> samples = make_samples(20);
  samples[9].encoded = "junk";
  PackSettings none = settings("a");
  none.max_bad_share = 0;
  EXPECT_EQ(error_of([&] { pack(MemorySource(samples), "", none); }),
            "memory, 20 samples: 1 of the first 10 samples cannot be used (1 bad_image), more than max_bad_share 0 "
            "allows (--max-bad-share 0.2 allows more, tessera-data inspect counts all of them); this one: sample 9: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are text (\"junk\")");
}

TEST_F(Pack, ASecondCallReportsThatThePackWasComplete) {
  const MemorySource source(make_samples(5));
  EXPECT_FALSE(pack(source, "", settings("a")).was_complete);
  EXPECT_TRUE(pack(source, "", settings("a")).was_complete);
}

TEST(ShardKey, ReplacesCharactersThatWebDatasetWouldSplit) {
  for (const auto& [key, wanted] :
       std::vector<std::pair<std::string, std::string>>{{"000012", "000012"},
                                                        {"cats/1.jpg", "cats/1"},
                                                        {"cats/1.2.JPEG", "cats/1_2"},
                                                        {"/data/../v1.0/x.webp", "data/_/v1.0/x"},
                                                        {"web:http://a.b/c.png", "web:http:/a.b/c"},
                                                        {".hidden", "_hidden"},
                                                        {"", "_"},
                                                        {"caf\xE9", "caf\uFFFD"},
                                                        {"a\nb", "a_b"}})
    EXPECT_EQ(shard_key(key), wanted) << key;
  const std::string a = shard_key(std::string(200, 'a')), b = shard_key(std::string(201, 'a'));
  EXPECT_NE(a, b);
  EXPECT_LE((a + "-123456789.summary.txt").size(), 100U) << "also with an index, which makes keys unique, it must fit a tar";
}

TEST_F(Pack, EqualShardKeysAreMadeUnique) {
  std::vector<Sample> samples = make_samples(3);
  samples[0].key = "a.png";
  samples[1].key = "a.jpg";
  pack(MemorySource(samples), "", settings("a"));
  EXPECT_EQ(packed("a")->get(0).key, "a");
  EXPECT_EQ(packed("a")->get(1).key, "a-1");
  EXPECT_EQ(packed("a")->size(), 3);
}

}  // namespace
}  // namespace tessera
