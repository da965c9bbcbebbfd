// Tests how the members of a shard's samples are read: JSON as Python writes it, blank captions, and errors about members.

#include <gtest/gtest.h>

#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_of.h"
#include <tessera/base/log.h>
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

using Captions = std::vector<std::string>;
using Files = std::vector<std::pair<std::string, std::string>>;

class WebDatasetMembers : public FolderTest {
 protected:
  // Writes a shard that holds, for each key, an image KEY.png and those of `files` whose names begin with KEY and a dot. Returns a source
  // that reads the shard.
  std::shared_ptr<const IndexedSource> source_of(const std::vector<std::string>& keys, const Files& files,
                                                 WebDatasetSettings settings = {}) const {
    io::TarWriter tar(path("a.tar"));
    const std::string image = test::encode(test::noise(8, 9, 1), ".png");
    for (const std::string& key : keys) {
      tar.add(key + ".png", image);
      for (const auto& [name, content] : files)
        if (name.starts_with(key + ".")) tar.add(name, content);
    }
    tar.finish();
    settings.path = {{path("a.tar")}};
    settings.index_cache = "off";
    return indexed(make_webdataset(settings));
  }

  static Loader loader_of(const std::shared_ptr<const Source>& source, LoaderSettings settings = {}) {
    settings.batch_size = 2;
    return {source, std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, {}, 5};
  }
};

/// Returns a .npy file as NumPy writes it.
template <class T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  std::string out = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + std::string(1, '\0') + header;
  for (const T value : values) out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return out;
}

TEST_F(WebDatasetMembers, NumbersOfAnNpyMemberAreFields) {
  WebDatasetSettings settings;
  settings.npy_fields = {"region", "year"};
  const auto source = source_of({"long", "byte", "double", "both", "none", "more", "matrix"},
                                {{"long.npy", npy<std::int64_t>("<i8", "(2,)", {3, 2016})},
                                 {"byte.npy", npy<std::uint8_t>("|u1", "(2,)", {0, 200})},
                                 {"double.npy", npy<double>("<f8", "(2,)", {1, -0.5})},
                                 {"both.json", R"({"caption": "a cat", "year": 1})"},
                                 {"both.npy", npy<std::int32_t>("<i4", "(2,)", {4, 2017})},
                                 {"more.npy", npy<std::int32_t>("<i4", "(3,)", {4, 2017, 1})},
                                 {"matrix.npy", npy<std::int32_t>("<i4", "(1, 2)", {4, 2017})}},
                                settings);
  EXPECT_EQ(source->get(0).fields, R"({"region":3,"year":2016})");
  EXPECT_EQ(source->get(1).fields, R"({"region":0,"year":200})");
  EXPECT_EQ(source->get(2).fields, R"({"region":1,"year":-0.5})");
  EXPECT_EQ(source->get(3).fields, R"({"caption":"a cat","region":4,"year":2017})");
  EXPECT_EQ(source->get(3).captions, Captions{"a cat"});
  EXPECT_EQ(source->get(4).fields, "");
  const auto error = [&](std::int64_t index) { return error_of<SampleError>([&] { source->get(index); }); };
  EXPECT_EQ(error(5), path("a.tar") + ": sample more: its member npy has 3 numbers, but npy_fields names 2");
  EXPECT_EQ(error(6), path("a.tar") + ": sample matrix: its member npy is not a .npy of numbers in one dimension: it has 2 dimensions");
}

TEST_F(WebDatasetMembers, AFilterReadsTheNumbersOfAnNpyMember) {
  source_of({"a", "b", "c"}, {{"a.npy", npy<std::int64_t>("<i8", "(1,)", {3})}, {"b.npy", npy<std::int64_t>("<i8", "(1,)", {1})}});
  const auto source = indexed(sources().make(
      {"webdataset",
       config::parse_yaml("{npy_fields: [region], filter: region > 1, path: " + path("a.tar") + "}", "source.yaml")},
      "source"));
  ASSERT_EQ(source->size(), 1);
  EXPECT_EQ(source->get(0).key, "a");
}

TEST_F(WebDatasetMembers, JsonMayContainPythonsExtensions) {
  WebDatasetSettings settings;
  settings.summary_keys = {"json.title"};
  const auto source =
      source_of({"nan", "inf", "half", "pair", "text"},
                {{"nan.json", R"({"caption": "a cat", "similarity": NaN, "title": "t"})"},
                 {"inf.json", R"({"list": [Infinity, -Infinity, -1], "caption": "NaN \"Infinity\" \\"})"},
                 {"half.json", R"({"similarity": NaN, "caption": "x\ud83d y\udc31 \ud83dz"})"},
                 {"pair.json", R"({"similarity": NaN, "caption": "\ud83d\udc31 \u00e9"})"},
                 {"text.json", R"({"similarity": Nan, "caption": "no"})"}},
                settings);
  EXPECT_EQ(source->get(0).captions, Captions{"a cat"});
  EXPECT_EQ(source->get(0).summary, "t");
  EXPECT_EQ(source->get(1).captions, Captions{"NaN \"Infinity\" \\"});
  EXPECT_EQ(source->get(2).captions, Captions{"x\uFFFD y\uFFFD \uFFFDz"});
  EXPECT_EQ(source->get(3).captions, Captions{"\U0001F431 \u00E9"});
  EXPECT_THROW(source->get(4), SampleError);
}

TEST_F(WebDatasetMembers, DeeplyNestedJsonIsNotRead) {
  const std::string opened(100'000, '['), closed(100'000, ']');
  const auto source = source_of({"deep", "text"}, {{"deep.json", R"({"caption": "no", "x": )" + opened + closed + "}"},
                                                   {"text.json", R"({"caption": "yes", "x": "\")" + opened + "\"}"}});
  EXPECT_TRUE(keyed_error_of([&] { source->get(0); }).starts_with("bad_json deep: "));
  EXPECT_EQ(source->get(1).captions, Captions{"yes"}) << "brackets in a text are no nesting";
}

TEST_F(WebDatasetMembers, AnUnreadableJsonMemberIsReportedOnceIfThereIsACaption) {
  const auto source =
      source_of({"a", "b"}, {{"a.txt", "one"}, {"a.json", "{"}, {"b.txt", "two"}, {"b.json", "{"}});
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(source->get(0).captions, Captions{"one"});
  EXPECT_EQ(source->get(1).captions, Captions{"two"});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("sample a: its json member is not JSON"), std::string::npos) << log;
  EXPECT_EQ(log.find("sample b"), std::string::npos) << log;
}

TEST_F(WebDatasetMembers, BlankCaptionsAreDropped) {
  const auto source = source_of({"a", "b"}, {{"a.json", R"({"captions": ["one", " ", "two", ""]})"},
                                             {"b.txt", " \n"},
                                             {"b.caption", "three"}});
  EXPECT_EQ(source->get(0).captions, (Captions{"one", "two"}));
  EXPECT_EQ(source->caption_count(0), 2);
  EXPECT_EQ(source->get(1).captions, Captions{"three"});
  EXPECT_EQ(source->caption_count(1), 1);
  LoaderSettings each;
  each.caption_choice = "all";
  Loader loader = loader_of(source, each);
  for (int i = 0; i < 6; ++i) loader.next();
  EXPECT_TRUE(loader.statistics().skipped.empty());
}

TEST_F(WebDatasetMembers, CaptionsWithLineBreaksAreReportedOnce) {
  const Files files = {{"a.txt", "one\ntwo\n"}, {"b.txt", "three\nfour"}, {"c.txt", "five\nsix"}};
  const auto said = [&](const Files& captions, bool lines) {
    log::set_level(log::Level::info);
    testing::internal::CaptureStderr();
    WebDatasetSettings settings;
    settings.caption_lines = lines;
    const auto source = source_of({"a", "b", "c"}, captions, settings);
    for (int i = 0; i < 3; ++i) source->get(i);
    return testing::internal::GetCapturedStderr();
  };
  const std::string log = said(files, false);
  const std::size_t found = log.find("webdataset " + path("a.tar") + ": so far, 2 of 2 captions have line breaks");
  EXPECT_NE(found, std::string::npos) << log;
  EXPECT_EQ(log.find("so far", found + path("a.tar").size() + 20), std::string::npos) << log;
  EXPECT_EQ(said(files, true).find("line breaks"), std::string::npos);
  const std::string json =
      said({{"a.json", R"({"caption": "a\rb"})"}, {"b.txt", "two"}, {"c.json", R"({"caption": "c\nd"})"}}, false);
  EXPECT_NE(json.find("so far, 2 of 3 captions have line breaks"), std::string::npos) << json;
  EXPECT_EQ(said({{"a.txt", "one\n"}, {"b.txt", "two"}, {"c.txt", "a\nb"}}, false).find("line breaks"), std::string::npos);
}

TEST_F(WebDatasetMembers, PointersAreNoCaptions) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n";
  const auto source = source_of({"a", "b", "c"}, {{"a.txt", pointer}, {"b.json", pointer}, {"c.txt", "\xEF\xBB\xBFx"}});
  const std::string text = keyed_error_of([&] { source->get(0); });
  EXPECT_TRUE(text.starts_with("bad_text a: " + path("a.tar") + ": sample a: its member txt: is not a text: ")) << text;
  const std::string json = keyed_error_of([&] { source->get(1); });
  EXPECT_NE(json.find("its json member is not JSON: it begins with the text"), std::string::npos) << json;
  EXPECT_EQ(source->get(2).captions, Captions{"x"}) << "without its byte order mark";
}

TEST_F(WebDatasetMembers, CaptionsAreReadWithoutTheImage) {
  const auto source =
      source_of({"a", "b", "c"}, {{"a.jpg", ""}, {"a.txt", "one"}, {"b.json", R"({"caption": "two"})"}, {"c.json", "{"}});
  EXPECT_THROW(source->get(0), SampleError) << "its image has 0 bytes";
  EXPECT_EQ(source->captions(0), Captions{"one"});
  EXPECT_EQ(source->captions(1), Captions{"two"});
  const std::string error = keyed_error_of([&] { source->captions(2); });
  EXPECT_TRUE(error.starts_with("bad_json c: " + path("a.tar") + ": sample c: ")) << error;
}

TEST_F(WebDatasetMembers, AnErrorNamesTheSamplesKey) {
  const auto source = source_of({"a", "b"}, {{"a.txt", "one"}, {"b.json", "{"}});
  EXPECT_TRUE(keyed_error_of([&] { source->get(1); }).starts_with("bad_json b: "));
}

TEST_F(WebDatasetMembers, AFieldThatNoSampleHasIsReportedWithTheExistingMembers) {
  const auto source = source_of({"a", "b"}, {{"a.json", R"({"title": "t", "url": "u"})"}, {"b.cls", "1"}});
  const std::string error = error_of([&] { loader_of(source); });
  EXPECT_NE(
      error.find("missing caption; found image and label; needed image and caption. Its members are cls, json and "
                 "png (json: title and url); image is looked for in jpg, jpeg, png, webp, gif, bmp, tif, tiff, jpe, "
                 "jfif, jfi, jif, "
                 "pjpeg, pjp and apng (image_keys), "
                 "caption is looked for in txt, caption, text, json.caption and json.captions (caption_keys)"),
      std::string::npos)
      << error;
}

TEST_F(WebDatasetMembers, ASourceWithoutReadableSamplesIsNotReportedAsEmpty) {
  Files files;
  std::vector<std::string> keys;
  for (int i = 0; i < 120; ++i) {
    keys.push_back(std::to_string(i));
    files.push_back({keys.back() + ".json", "{"});
  }
  const auto source = source_of(keys, files);
  const std::string error = error_of([&] {
    Loader loader = loader_of(source);
    for (int i = 0; i < 60; ++i) loader.next();
  });
  EXPECT_NE(error.find("none could be read; needed image and caption. Its members are json and png"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace tessera
