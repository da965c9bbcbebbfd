#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/image/decode.h"
#include "src/data/shapes/shapes.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/shards.h"
#include <tessera/base/log.h>
#include <tessera/data/image/transforms.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using test::noise_png;

class Sources : public FolderTest {
 protected:
  WebDatasetSettings at_path(const std::string& name) const {
    return PathList{{path(name)}};
  }
};

// Returns the bytes of a ustar member, built by hand so that the tests can damage them.
std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, std::min<std::size_t>(name.size(), 100), name.substr(0, 100));
  header.replace(100, 8, std::string("0000644\0", 8));
  std::array<char, 13> size{};
  std::snprintf(size.data(), size.size(), "%011zo", content.size());
  header.replace(124, 12, std::string(size.data(), 12));
  header.replace(136, 12, std::string("00000000000\0", 12));
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (char c : header) sum += static_cast<unsigned char>(c);
  std::array<char, 8> checksum{};
  std::snprintf(checksum.data(), checksum.size(), "%06o", sum);
  header.replace(148, 8, std::string(checksum.data(), 7) + ' ');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

const std::string tar_end(1024, '\0');

std::string three_samples() {
  std::string tar;
  for (int i = 0; i < 3; ++i) {
    const std::string key = "d/00" + std::to_string(i);
    tar += tar_member(key + ".png", noise_png(i)) + tar_member(key + ".txt", "caption " + std::to_string(i) + "\n") +
           tar_member(key + ".cls", std::to_string(i));
  }
  return tar;
}

TEST_F(Sources, WebDatasetReadsMembersByName) {
  write("a.tar", three_samples() + tar_end);
  write("classes.txt", "cat\ndog\nemu\n");
  const auto source = indexed(make_webdataset(at_path("a.tar")));
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"cat", "dog", "emu"}));
  EXPECT_EQ(source->describe(), "webdataset " + path("a.tar") + ", 3 samples");
  const Sample sample = source->get(2);
  EXPECT_EQ(sample.key, "d/002");
  EXPECT_EQ(sample.captions, std::vector<std::string>{"caption 2"});
  EXPECT_EQ(sample.label, 2);
  EXPECT_EQ(sample.encoded, noise_png(2));
}

TEST_F(Sources, WebDatasetReadsEveryKindOfMember) {
  cv::Mat levels(8, 9, CV_8U, cv::Scalar(3));
  std::string npy("\x93NUMPY\x01\0", 8);
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n";
  npy += static_cast<char>(header.size());
  npy += '\0';
  npy += header;
  for (float value : {1.F, 2.F, 3.F, 4.F, 5.F, 6.F}) npy.append(reinterpret_cast<const char*>(&value), 4);
  write("a.tar", tar_member("k.PNG", noise_png(1)) +
                     tar_member("k.json", R"({"caption": "one", "captions": ["two", "three"], "n": 1})") +
                     tar_member("k.mask.png", test::encode_mat(levels, ".png")) + tar_member("k.summary.txt", "short") +
                     tar_member("k.objects.txt", "cat, dog") + tar_member("k.regions.npy", npy) +
                     tar_member("k.cls", "dog") + tar_end);
  write("names", "cat\ndog");
  WebDatasetSettings settings = at_path("a.tar");
  settings.classes = path("names");
  const Sample sample = indexed(make_webdataset(settings))->get(0);
  EXPECT_EQ(sample.captions, (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(sample.mask, std::vector<std::uint8_t>(72, 3));
  EXPECT_EQ(sample.summary, "short");
  EXPECT_EQ(sample.object_tags, "cat, dog");
  EXPECT_EQ(sample.regions, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(sample.region_width, 3);
  EXPECT_EQ(sample.label, 1);
}

TEST_F(Sources, AShardOfShapesReadsBackEqual) {
  ShapesSettings shapes{.size = 5, .regions = true};
  const ShapesSource original(shapes);
  write_shards(original, {.folder = path("shapes")});
  const auto source = indexed(make_webdataset(at_path("shapes")));
  ASSERT_EQ(source->size(), 5);
  EXPECT_EQ(source->class_names(), original.class_names());
  for (std::int64_t i = 0; i < 5; ++i) {
    const Sample ours = source->get(i), theirs = original.get(i);
    EXPECT_EQ(ours.key, theirs.key);
    EXPECT_EQ(decode_image(ours.encoded).pixels, theirs.image.pixels);
    EXPECT_EQ(ours.captions, theirs.captions);
    EXPECT_EQ(ours.mask, theirs.mask);
    EXPECT_EQ(ours.label, theirs.label);
    EXPECT_EQ(ours.summary, theirs.summary);
    EXPECT_EQ(ours.object_tags, theirs.object_tags);
    EXPECT_EQ(ours.regions, theirs.regions);
    ASSERT_EQ(ours.objects.size(), theirs.objects.size());
    for (std::size_t k = 0; k < ours.objects.size(); ++k) {
      EXPECT_EQ(ours.objects[k].box, theirs.objects[k].box);
      EXPECT_EQ(ours.objects[k].span, theirs.objects[k].span);
      EXPECT_EQ(ours.objects[k].phrase, theirs.objects[k].phrase);
      EXPECT_EQ(ours.objects[k].caption, theirs.objects[k].caption);
      EXPECT_EQ(ours.objects[k].negatives, theirs.objects[k].negatives);
    }
    ASSERT_EQ(ours.negatives.size(), theirs.negatives.size());
    for (std::size_t k = 0; k < ours.negatives.size(); ++k)
      EXPECT_EQ(ours.negatives[k].caption, theirs.negatives[k].caption);
  }
}

TEST_F(Sources, ATruncatedShardReturnsItsCompleteSamples) {
  const std::string whole = three_samples();
  // The last sample starts with this member. Each cut below is inside that sample.
  const std::size_t last = whole.find("d/002.png");
  for (std::size_t cut : {last + 100, last + 512 + 10, whole.size() - 1024 + 7, whole.size() - 1024 - 300}) {
    write("cut.tar", whole.substr(0, cut));
    EXPECT_EQ(make_webdataset(at_path("cut.tar"))->size(), 2) << cut;
  }
  write("full.tar", whole);  // all samples are complete, although tar's end-of-archive mark is missing
  EXPECT_EQ(make_webdataset(at_path("full.tar"))->size(), 3);
  const io::TarIndex index = [&] {
    write("cut.tar", whole.substr(0, last + 600));
    return io::index_tar(path("cut.tar"));
  }();
  EXPECT_EQ(index.problem, "the archive ends in the middle of d/002.png");
  EXPECT_EQ(index.problem_offset, last);
  write("cut.tar", whole.substr(0, 600));
  EXPECT_EQ(error_of([&] { make_webdataset(at_path("cut.tar")); }),
            path("cut.tar") + ": holds no samples (files named KEY.jpg, KEY.txt, ...); " + path("cut.tar") +
                ": the archive ends in the middle of d/000.png (byte 0); its 0 complete samples are used");
}

TEST_F(Sources, JoinedArchivesAreReadToTheirEnd) {
  const std::string one = three_samples(), two = tar_member("e/003.png", noise_png(3)) + tar_member("e/003.txt", "x") + tar_end;
  write("joined.tar", one + std::string(8192, '\0') + two + std::string(10240, '\0'));
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(make_webdataset(at_path("joined.tar"))->size(), 4);
  EXPECT_EQ(make_webdataset(at_path("joined.tar"))->size(), 4);  // from the stored index
  write("trailing.tar", one + tar_end + "some bytes");
  EXPECT_EQ(make_webdataset(at_path("trailing.tar"))->size(), 3);
  write("zeros.tar", one + std::string(700, '\0'));
  EXPECT_EQ(make_webdataset(at_path("zeros.tar"))->size(), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("1 of 1 shards are several archives, one after the other: all are read"), std::string::npos) << said;
  EXPECT_NE(said.find("are ignored (first: " + path("trailing.tar") + ", 10 bytes)"), std::string::npos) << said;
  EXPECT_EQ(said.find("zeros.tar"), std::string::npos) << said;
}

TEST_F(Sources, EmptyShardsAreCounted) {
  write("a.tar", three_samples());
  write("b.tar", "");
  write("c.tar", tar_end);
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(make_webdataset(at_path("{a,b,c}.tar"))->size(), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("2 of 3 shards are empty (first: " + path("b.tar") + ")"), std::string::npos) << said;
}

TEST_F(Sources, ShardsWithFilesButNoSamplesAreCounted) {
  write("a.tar", three_samples());
  write("b.tar", tar_member("README", "x") + tar_member("d/.hidden", "x") + tar_end);
  log::set_level(log::Level::info);
  const auto said = [&](const WebDatasetSettings& settings) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(make_webdataset(settings)->size(), 3);
    return testing::internal::GetCapturedStderr();
  };
  const std::string files = said(at_path("{a,b}.tar"));
  EXPECT_NE(files.find("1 of 2 shards hold files, but none named KEY.ENDING, so that they have no samples (first: " +
                       path("b.tar") + ", with README)"),
            std::string::npos)
      << files;
  EXPECT_EQ(files.find("are empty"), std::string::npos) << files;
}

TEST_F(Sources, WebPagesAndPointersOfGitLfsAreNamed) {
  write("a.png", noise_png(1));
  for (const std::string choice :
       {"webdataset, path: X.tar", "webdataset, path: X.tar.gz, stream: {retries: 0}", "csv, path: X.csv",
        "json_lines, path: X.jsonl, images: .", "parquet, path: X.parquet", "coco_captions, annotations: X.json, images: .",
        "image_folder, path: ., captions: X.tsv"}) {
    const std::size_t begin = choice.find('X'), end = choice.find_first_of(",", begin);
    const std::string file = choice.substr(begin, end - begin);
    const auto error_with = [&](const std::string& content) {
      write(file, content);
      const auto before = std::filesystem::current_path();
      std::filesystem::current_path(path("."));
      const std::string error = error_of([&] {
        const config::Node node = config::parse_yaml("{name: " + choice + "}", "");
        sources().make(config::Value<config::ModuleSettings>::read(node, "data.train", {}), "data.train");
      });
      std::filesystem::current_path(before);
      return error;
    };
    const std::string pointer = error_with("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
    EXPECT_NE(pointer.find("git-lfs.github.com/spec/\": it is a pointer of Git LFS"), std::string::npos) << choice << pointer;
    const std::string page = error_with("\n<!DOCTYPE html>\n<html>");
    EXPECT_NE(page.find("\"<!DOCTYPE html>\": it is a web page"), std::string::npos) << choice << page;
    for (const char* other : {"<!-- none -->\n<html>", "404: Not Found\n"})
      EXPECT_NE(error_with(other).find("it is a web page or an error message"), std::string::npos) << choice << other;
  }
}

TEST_F(Sources, KeysOfMembersMatchInAnyCase) {
  write("a.tar", tar_member("1.Left.PNG", noise_png(1)) + tar_member("1.Note.TXT", "a cat") +
                     tar_member("1.JSON", R"({"Title": "t"})") + tar_end);
  WebDatasetSettings settings = at_path("a.tar");
  settings.image_keys = {"Left.png"};
  settings.caption_keys = {"Note.txt"};
  settings.summary_keys = {"json.Title"};
  const auto source = indexed(make_webdataset(settings));
  EXPECT_EQ(source->get(0).captions, std::vector<std::string>{"a cat"});
  EXPECT_EQ(source->get(0).summary, "t");
  EXPECT_FALSE(source->get(0).encoded.empty());
}

TEST_F(Sources, DamagedAndForeignFilesAreReported) {
  std::string damaged = three_samples();
  damaged[damaged.find("d/001.txt")] = 'X';
  write("damaged.tar", damaged);
  EXPECT_EQ(make_webdataset(at_path("damaged.tar"))->size(), 1)
      << "d/001 lost its caption, and everything after it is unreliable";
  write("text.tar", "hello, this is no archive" + std::string(600, 'x'));
  EXPECT_EQ(error_of([&] { make_webdataset(at_path("text.tar")); }),
            path("text.tar") + ": is not a tar archive: it begins with the text \"hello, this is no archivexxxxxxxxxxxxxxx\"");
  write("binary.tar", "\x01" + std::string(600, 'x'));
  EXPECT_EQ(error_of([&] { make_webdataset(at_path("binary.tar")); }),
            path("binary.tar") + ": is not a tar archive (its first header's checksum is wrong)");
  write("zipped.tar", std::string("\x1F\x8B\x08\0", 4) + std::string(600, 'x'));
  EXPECT_EQ(error_of([&] { make_webdataset(at_path("zipped.tar")); }),
            path("zipped.tar") + ": is compressed with gzip; expected an uncompressed tar: decompress it first");
  EXPECT_EQ(error_of([&] { make_webdataset(at_path("none.tar")); }), path("none.tar") + ": no such file");
  write("empty.tar", "");
  EXPECT_NE(error_of([&] { make_webdataset(at_path("empty.tar")); }).find("holds no samples"), std::string::npos);
  write("texts.tar", tar_member("a.txt", "x") + tar_member("a.jpeg2", "x") + tar_end);
  EXPECT_EQ(error_of([&] { make_webdataset(at_path("texts.tar")); }),
            path("texts.tar") +
                ": no sample has an image: the members found are jpeg2 and txt, the image is looked for in jpg, jpeg, "
                "png, webp, gif, bmp, tif, tiff, jpe, jfif, jfi, jif, pjpeg, pjp and apng (image_keys)");
}

TEST_F(Sources, RepeatedAndScatteredKeysLoseNoSamples) {
  write("a.tar", tar_member("a.png", noise_png(1)) + tar_member("a.txt", "one") + tar_member("a.png", noise_png(2)) +
                     tar_member("a.txt", "two") + tar_member("b.png", noise_png(3)) + tar_member("c.png", noise_png(4)) +
                     tar_member("b.txt", "b") + tar_member("c.txt", "c") + tar_end);
  const auto source = indexed(make_webdataset(at_path("a.tar")));
  ASSERT_EQ(source->size(), 4);
  EXPECT_EQ(source->get(0).captions[0], "one");
  EXPECT_EQ(source->get(1).captions[0], "two");
  EXPECT_EQ(source->get(1).encoded, noise_png(2));
  EXPECT_EQ(source->get(2).captions[0], "b");
  EXPECT_EQ(source->get(3).encoded, noise_png(4));
}

TEST_F(Sources, ErrorsOfBadMembersNameShardAndKey) {
  write("a.tar", tar_member("good.png", noise_png(1)) + tar_member("a.txt", "no picture") + tar_member("b.png", "") +
                     tar_member("c.png", noise_png(1)) + tar_member("c.cls", "12x") + tar_end);
  const auto source = indexed(make_webdataset(at_path("a.tar")));
  const auto error = [&](std::int64_t index) {
    return sample_error_of([&] {
      Sample sample = source->get(index);
      take_image(sample);
    });
  };
  EXPECT_EQ(error(0), "no error");
  EXPECT_EQ(error(1),
            "no_image: " + path("a.tar") +
                ": sample a: has no image; expected one of the members jpg, jpeg, png, webp, gif, bmp, tif, tiff, "
                "jpe, jfif, jfi, jif, pjpeg, pjp and apng");
  EXPECT_EQ(error(2), "empty_image: " + path("a.tar") + ": sample b: the image has 0 bytes");
  EXPECT_EQ(error(3), "no error");
  EXPECT_EQ(source->get(3).class_name, "12x") << "without a file of classes the name is kept";
  io::write_file(path("classes.txt"), "cat\ndog\n");
  EXPECT_EQ(error_of<SampleError>([&] { indexed(make_webdataset(at_path("a.tar")))->get(3); }),
            path("a.tar") +
                ": sample c: its class \"12x\" (label_keys) is neither an index nor a name in the file of classes (classes)");
}

// Expects three samples, written by another program, whose keys are `prefix` + "000" to "002".
void expect_long_names(const IndexedSource& source, const std::string& prefix) {
  ASSERT_EQ(source.size(), 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    const Sample sample = source.get(i);
    EXPECT_EQ(sample.key, prefix + "00" + std::to_string(i));
    EXPECT_EQ(sample.encoded, noise_png(static_cast<int>(i)));
    EXPECT_EQ(sample.captions, std::vector<std::string>{"caption " + std::to_string(i)});
  }
}

TEST_F(Sources, ReadsLongNamesWrittenByGnuTar) {
  const std::string prefix = std::string(120, 'l') + "/" + std::string(110, 'm') + "/";
  for (int i = 0; i < 3; ++i) {
    write("in/" + prefix + "00" + std::to_string(i) + ".png", noise_png(i));
    write("in/" + prefix + "00" + std::to_string(i) + ".txt", "caption " + std::to_string(i));
  }
  for (const char* format : {"gnu", "posix", "ustar"}) {
    if (!shell("cd " + path("in") + " && tar --sort=name --format=" + format + " -cf ../" + format + ".tar " +
               std::string(120, 'l'))) {
      if (std::string(format) == "ustar") continue;  // in the format ustar, GNU tar may refuse names this long
      GTEST_SKIP() << "GNU tar is not installed";
    }
    expect_long_names(*indexed(make_webdataset(at_path(std::string(format) + ".tar"))), prefix);
  }
}

TEST_F(Sources, SkipsLinksFoldersAndSparseFilesOfGnuTar) {
  for (int i = 0; i < 3; ++i) {
    write("in/x/00" + std::to_string(i) + ".png", noise_png(i));
    write("in/x/00" + std::to_string(i) + ".txt", "caption " + std::to_string(i));
  }
  // A sparse file's headers list its holes. In the old format, a file with 30 holes needs more than one header.
  const bool made = shell("cd " + path("in/x") +
                          " && ln -s 000.png 000.link.png && ln 001.txt 001.z-hard.txt && mkdir 002.d && "
                          "for i in $(seq 30); do dd if=000.txt of=001.sparse bs=1 seek=${i}00000 conv=notrunc; done");
  for (const char* format : {"gnu", "posix", "v7", "oldgnu"}) {
    const std::string sparse = std::string(format) == "v7" ? " --exclude=*.sparse" : " --sparse";
    if (!made || !shell("cd " + path("in") + " && tar --sort=name --format=" + format + sparse + " -cf ../a.tar x"))
      GTEST_SKIP() << "GNU tar is not installed";
    const auto source = indexed(make_webdataset(at_path("a.tar")));
    expect_long_names(*source, "x/");
  }
}

TEST_F(Sources, TheSizeFieldOfALinkIsIgnored) {
  std::string link = tar_member("k.txt", std::string(700, 'x'), '1').substr(0, 512);
  write("a.tar", tar_member("a.png", noise_png(1)) + link + tar_member("a.txt", "fine") + tar_end);
  EXPECT_EQ(indexed(make_webdataset(at_path("a.tar")))->get(0).captions, std::vector<std::string>{"fine"});
}

TEST_F(Sources, TextsAndLabelsMayComeFromJsonFields) {
  write("a.tar",
        tar_member("00.jpg", noise_png(1)) +
            tar_member("00.json", R"({"caption": "one", "n": 2, "s": " short ", "tags": ["cat", "dog", null]})") +
            tar_member("01.jpg", noise_png(1)) + tar_member("01.txt", "two") +
            tar_member("01.json", R"({"caption": null, "status": "success"})") + tar_end);
  WebDatasetSettings settings = at_path("a.tar");
  settings.label_keys = {"cls", "json.n"};
  settings.summary_keys = {"json.s"};
  settings.object_keys = {"json.none", "json.tags"};
  const auto source = indexed(make_webdataset(settings));
  const Sample sample = source->get(0);
  EXPECT_EQ(sample.captions, std::vector<std::string>{"one"}) << "img2dataset may write no .txt";
  EXPECT_EQ(sample.label, 2);
  EXPECT_EQ(sample.summary, "short");
  EXPECT_EQ(sample.object_tags, "cat, dog");
  EXPECT_EQ(source->get(1).captions, std::vector<std::string>{"two"});
  EXPECT_EQ(source->get(1).label, -1);
}

TEST_F(Sources, ReadsLongNamesWrittenByPython) {
  if (!shell("python3 -c 'import tarfile'")) GTEST_SKIP() << "no python3 here";
  const std::string prefix = "\xC3\xA9" + std::string(150, 'p') + "/";
  for (int i = 0; i < 3; ++i) write("p" + std::to_string(i), noise_png(i));
  for (const char* format : {"PAX", "GNU"}) {
    write("make.py",
          std::string("import tarfile, io\nt = tarfile.open('") + path("py.tar") + "', 'w', format=tarfile." + format +
              "_FORMAT)\n" +
              "def add(n, b):\n  i = tarfile.TarInfo(n); i.size = len(b); i.mtime = 1.5; t.addfile(i, io.BytesIO(b))\n"
              "for k in range(3):\n  add('" +
              prefix + "00%d.png' % k, open('" + path("p") + "%d' % k, 'rb').read())\n  add('" + prefix +
              "00%d.txt' % k, b'caption %d' % k)\nt.close()\n");
    ASSERT_TRUE(shell("python3 " + path("make.py")));
    expect_long_names(*indexed(make_webdataset(at_path("py.tar"))), prefix);
  }
}

TEST_F(Sources, AreCreatedByNameFromYaml) {
  write("a.tar", three_samples() + tar_end);
  const auto choice = config::Value<config::ModuleSettings>::read(
      config::parse_yaml("{name: webdataset, path: " + path("a.tar") + "}", "c.yaml"), "data.train", {});
  EXPECT_EQ(sources().make(choice, "data.train")->size(), 3);
  const auto wrong =
      config::Value<config::ModuleSettings>::read(config::parse_yaml("{name: webdataset, pth: x}", "c.yaml"), "data.train", {});
  EXPECT_EQ(error_of([&] { sources().resolve(wrong, "data.train"); }),
            "c.yaml:1: data.train.pth: unknown key: did you mean path?");
}

}  // namespace
}  // namespace tessera
