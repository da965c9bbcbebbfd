#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/config/file_path.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class FilePaths : public FolderTest {
 protected:
  FilePaths() {
    for (const char* name : {"yaml", "cwd"}) fs::create_directories(folder_ / name);
    fs::current_path(folder_ / "cwd");
  }
  ~FilePaths() override { fs::current_path(before_); }

  config::FilePath read(const std::string& name) const {
    return config::Value<config::FilePath>::read(config::parse_yaml(name, path("yaml/a.yaml")), "data.path", {});
  }

  const fs::path before_ = fs::current_path();
};

TEST_F(FilePaths, ARelativePathIsSearchedNextToItsFileThenInTheWorkingFolder) {
  write("cwd/both", "x"), write("yaml/both", "x"), write("cwd/here", "x");
  fs::create_directories(path("yaml/folder"));
  EXPECT_EQ(read("both").name, path("yaml/both"));
  EXPECT_EQ(read("here").name, path("cwd/here"));
  EXPECT_EQ(read("folder").name, path("yaml/folder"));
  EXPECT_EQ(read("../cwd/here").name, path("cwd/here"));
  EXPECT_EQ(read("/no/such").name, "/no/such");
}

TEST_F(FilePaths, AMissingFileIsReportedWithFileLineKeyAndFolders) {
  EXPECT_EQ(error_of([&] { config::require(read("nothing")); }),
            path("yaml/a.yaml") + ":1: data.path: nothing: no such file or folder in " + path("yaml") + " or " + path("cwd"));
}

TEST_F(FilePaths, APathInAnOverrideIsSearchedOnlyInTheWorkingFolder) {
  write("cwd/here", "x"), write("yaml/there", "x");
  config::Node node;
  config::apply_override(node, "a=here");
  EXPECT_EQ(config::Value<config::FilePath>::read(*node.find("a"), "a", {}).name, path("cwd/here"));
  config::apply_override(node, "a=there");
  const auto missing = config::Value<config::FilePath>::read(*node.find("a"), "a", {});
  EXPECT_EQ(missing.name, "there");
  EXPECT_EQ(missing.searched, std::vector<std::string>{path("cwd")});
}

TEST_F(FilePaths, ANewOutputIsCreatedInTheWorkingFolder) {
  fs::create_directories(path("yaml/old"));
  const auto read_output = [&](const std::string& name) {
    return config::Value<config::OutputPath>::read(config::parse_yaml(name, path("yaml/a.yaml")), "", {}).name;
  };
  EXPECT_EQ(read_output("old"), path("yaml/old"));
  EXPECT_EQ(read_output("new"), path("cwd/new"));
}

TEST_F(FilePaths, AShippedFileIsFoundLastButNeverWritten) {
  const std::string name = "configs/templates/cifar10.txt", shipped = TESSERA_SOURCE_DIR;
  EXPECT_EQ(read(name).name, shipped + "/" + name);
  EXPECT_EQ(config::Value<config::OutputPath>::read(config::parse_yaml(name, path("yaml/a.yaml")), "", {}).name, path("cwd/" + name));
  EXPECT_EQ(error_of([&] { config::require(read("configs/none.txt")); }),
            path("yaml/a.yaml") + ":1: data.path: configs/none.txt: no such file or folder in " + path("yaml") + " or " + path("cwd") +
                " or " + shipped);
  write("cwd/" + name, "x");
  EXPECT_EQ(read(name).name, path("cwd/" + name));
}

TEST_F(FilePaths, APathThatIsNotUtf8IsRefused) {
  write("z\xFCrich/here", "x");
  fs::current_path(folder_ / "z\xFCrich");
  const auto refusal = [&](const std::string& name) {
    return path("yaml/a.yaml") + ":1: data.path: " + path("z\uFFFDrich/") + name + " is not UTF-8: rename the folder or the file";
  };
  EXPECT_EQ(error_of([&] { read("here"); }), refusal("here"));
  EXPECT_EQ(error_of([&] { config::Value<config::OutputPath>::read(config::parse_yaml("new", path("yaml/a.yaml")), "data.path", {}); }),
            refusal("new"));
}

}  // namespace
}  // namespace tessera
