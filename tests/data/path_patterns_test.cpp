#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/formats/paths.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"

namespace tessera {
namespace {

class PathPatterns : public FolderTest {};

TEST(Braces, ExpandInOrder) {
  EXPECT_EQ(expand_braces("a{008..011}.tar"),
            (std::vector<std::string>{"a008.tar", "a009.tar", "a010.tar", "a011.tar"}));
  EXPECT_EQ(expand_braces("{x,y{1..2}}-{a,b}"),
            (std::vector<std::string>{"x-a", "x-b", "y1-a", "y1-b", "y2-a", "y2-b"}));
  EXPECT_EQ(expand_braces("plain"), std::vector<std::string>{"plain"});
  EXPECT_EQ(expand_braces("open{1..2"), std::vector<std::string>{"open{1..2"});
  EXPECT_EQ(error_of([] { expand_braces("a{5..x}.tar"); }),
            "a{5..x}.tar: {5..x} is not a range: expected two whole numbers or letters, for example {00000..00004}");
}

TEST(Braces, ExpandLikePythonsBraceexpand) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_braces("{0..4..2}"), (Names{"0", "2", "4"}));
  EXPECT_EQ(expand_braces("{00..10..5}"), (Names{"00", "05", "10"}));
  EXPECT_EQ(expand_braces("{0..7..-3}"), (Names{"0", "3", "6"}));
  EXPECT_EQ(expand_braces("{1..2..0}"), (Names{"1", "2"}));
  EXPECT_EQ(expand_braces("{8..10}"), (Names{"8", "9", "10"}));
  EXPECT_EQ(expand_braces("{0..10..10}"), (Names{"0", "10"})) << "a single 0 must not cause leading zeros";
  EXPECT_EQ(expand_braces("{2..-1}"), (Names{"2", "1", "0", "-1"}));
  EXPECT_EQ(expand_braces("{-01..1}"), (Names{"-01", "000", "001"}));
  EXPECT_EQ(expand_braces("{05..1..2}"), (Names{"05", "03", "01"}));
  EXPECT_EQ(expand_braces("{a..c}"), (Names{"a", "b", "c"}));
  EXPECT_EQ(expand_braces("{g..a..3}"), (Names{"g", "d", "a"}));
  EXPECT_EQ(expand_braces("{Y..b}"), (Names{"Y", "Z", "a", "b"}));
  EXPECT_EQ(expand_braces("{5}-{}-{a{1,2}}"), (Names{"{5}-{}-{a1}", "{5}-{}-{a2}"}));
  EXPECT_EQ(expand_braces("x{,.gz}"), (Names{"x", "x.gz"}));
  EXPECT_EQ(expand_braces("{0..9999..10}").size(), 1000U);
  EXPECT_EQ(error_of([] { expand_braces("{0..9999999..9}"); }),
            "{0..9999999..9}: {0..9999999..9} stands for more than 1000000 names");
}

TEST_F(PathPatterns, PathsMayBeListsPatternsAndFolders) {
  for (const char* name : {"s/a-00.tar", "s/a-01.tar", "s/b.tar", "s/notes.txt", "odd{1,2}.tar"}) write(name, "x");
  const std::vector<std::string> a = {path("s/a-00.tar"), path("s/a-01.tar")};
  EXPECT_EQ(expand_paths({{path("s/a-{00..01}.tar")}}, ".tar"), a);
  EXPECT_EQ(expand_paths({{path("s/a-*.tar")}}, ".tar"), a);
  EXPECT_EQ(expand_paths({{path("s/a-00.tar") + "::" + path("s/a-01.tar")}}, ".tar"), a);
  EXPECT_EQ(expand_paths({{path("s/a-00.tar") + "," + path("s/a-01.tar")}}, ".tar"), a);
  EXPECT_EQ(expand_paths({a}, ".tar"), a);
  EXPECT_EQ(expand_paths({{path("s")}}, ".tar"), (std::vector<std::string>{a[0], a[1], path("s/b.tar")}));
  EXPECT_EQ(expand_paths({{path("odd{1,2}.tar")}}, ".tar"), std::vector<std::string>{path("odd{1,2}.tar")});
  EXPECT_EQ(error_of([&] { expand_paths({{path("s/a-{00..03}.tar")}}, ".tar"); }),
            path("s/a-02.tar") + ": no such file (2 of the 4 files named are missing)");
  EXPECT_EQ(error_of([&] { expand_paths({{path("s/c*.tar")}}, ".tar"); }), path("s/c*.tar") + ": no file matches");
  EXPECT_EQ(error_of([&] { expand_paths({{"pipe:cat x"}}, ".tar"); }),
            "pipe:cat x: commands are not supported; expected local files");
}

TEST_F(PathPatterns, PathsInSettingsAreSearchedNextToTheirFileThenInTheWorkingFolder) {
  for (const char* name : {"yaml/s-00.tar", "yaml/s-01.tar", "work/t-0.tar"}) write(name, "x");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path("work"));
  const auto read = [&](const std::string& text) {
    return config::Value<PathList>::read(config::parse_yaml(text, path("yaml/a.yaml")), "data.train.path", {});
  };
  EXPECT_EQ(read("'s-{00..01}.tar'").items, std::vector<std::string>{path("yaml/s-{00..01}.tar")});
  EXPECT_EQ(read("'s-*.tar'").items, std::vector<std::string>{path("yaml/s-*.tar")});
  EXPECT_EQ(read("[s-00.tar, t-0.tar]").items, (std::vector<std::string>{path("yaml/s-00.tar"), path("work/t-0.tar")}));
  EXPECT_EQ(read("s-00.tar::t-0.tar").items,
            std::vector<std::string>{path("yaml/s-00.tar") + "::" + path("work/t-0.tar")});
  for (const std::string same : {"pipe:cat s-00.tar", "s3://b/s-00.tar", "/x/s-00.tar"})
    EXPECT_EQ(read("'" + same + "'").items, std::vector<std::string>{same});
  const std::string where = path("yaml/a.yaml") + ":1: data.train.path: ";
  EXPECT_EQ(error_of([&] { expand_paths(read("u-{0..1}.tar"), ".tar"); }),
            where + "u-0.tar: no such file in " + path("yaml") + " or " + path("work") +
                " (2 of the 2 files named are missing)");
  EXPECT_EQ(error_of([&] { expand_paths(read("'s-{01..02}.tar'"), ".tar"); }),
            where + path("yaml/s-02.tar") + ": no such file (1 of the 2 files named are missing)");
  EXPECT_EQ(error_of([&] { expand_paths(read("'u*.tar'"), ".tar"); }),
            where + "u*.tar: no file matches in " + path("yaml") + " or " + path("work"));
  std::filesystem::current_path(before);
}

TEST_F(PathPatterns, AFolderOfIndicesIsResolvedLikeAPath) {
  write("yaml/kept/x", "x");
  const auto read = [&](const std::string& text) {
    return config::Value<IndexPlace>::read(config::parse_yaml(text, path("yaml/a.yaml")), "", {}).name;
  };
  EXPECT_EQ(read("beside"), "beside");
  EXPECT_EQ(read("kept"), path("yaml/kept"));
  EXPECT_EQ(read("new"), (std::filesystem::current_path() / "new").string());
}

TEST_F(PathPatterns, RemotePathsThatCannotBeReadAreRefused) {
  EXPECT_EQ(error_of([&] { expand_paths({{"s3://bucket/x.csv"}}, ".csv"); }),
            "s3://bucket/x.csv: only local files can be read: copy them first and use their paths");
  WebDatasetSettings settings;
  settings.path = {{"hdfs://host/x.tar?a=1&b"}};
  EXPECT_EQ(error_of([&] { make_webdataset(settings); }),
            "hdfs://host/x.tar?a=1&b: only local files, s3://, gs://, hf://, http://, https:// and commands can be read: copy the files "
            "first, or read them through a command, such as path: \"pipe:COMMAND 'hdfs://host/x.tar?a=1&b'\"");
  EXPECT_EQ(error_of([&] { expand_paths({{"hdfs://host/x.csv"}}, ".csv", FilePlaces::stores); }),
            "hdfs://host/x.csv: only local files, s3://, gs://, hf://, http:// and https:// can be read: copy the files first");
  EXPECT_EQ(error_of([&] { expand_paths({{"file://host/x.tar"}}, ".tar"); }),
            "file://host/x.tar: is on another machine; expected file:///PATH, a local file");
  EXPECT_EQ(error_of([&] { expand_paths({{"a.tar::pipe:cat x"}}, ".tar", FilePlaces::commands); }).substr(0, 10), "pipe:cat x");
}

TEST_F(PathPatterns, FileUrlsAreLocalPaths) {
  write("s/0.tar", "x");
  write("s/1.tar", "x");
  const std::vector<std::string> both = {path("s/0.tar"), path("s/1.tar")};
  for (const std::string scheme : {"file://", "file:", "file://localhost"}) {
    EXPECT_EQ(expand_paths({{scheme + path("s/{0,1}.tar")}}, ".tar"), both) << scheme;
    EXPECT_EQ(expand_paths({{scheme + path("s/0.tar") + "::" + scheme + path("s/1.tar")}}, ".tar"), both) << scheme;
    EXPECT_EQ(expand_paths({{scheme + path("s")}}, ".tar"), both) << scheme;
  }
  EXPECT_EQ(error_of([&] { expand_paths({{"file:///no/such.tar"}}, ".tar"); }), "/no/such.tar: no such file");
}

TEST_F(PathPatterns, AnUnclosedBraceIsReported) {
  EXPECT_EQ(error_of([&] { expand_paths({{path("a-{0..3.tar")}}, ".tar"); }),
            path("a-{0..3.tar") + ": no such file: its brace { is not closed");
  EXPECT_EQ(error_of([&] { expand_paths({{path("{5}{*.tar")}}, ".tar"); }),
            path("{5}{*.tar") + ": no file matches: its brace { is not closed");
  EXPECT_EQ(error_of([&] { expand_paths({{path("{5}.tar")}}, ".tar"); }), path("{5}.tar") + ": no such file");
  write("open{.tar", "x");
  EXPECT_EQ(expand_paths({{path("open{.tar")}}, ".tar"), std::vector<std::string>{path("open{.tar")});
}

}  // namespace
}  // namespace tessera
