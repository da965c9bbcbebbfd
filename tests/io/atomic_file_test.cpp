#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::io {
namespace {

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera_atomic_file_" + std::to_string(::getpid()));
};

TEST_F(AtomicFileTest, AppearsWithItsFoldersOnCommit) {
  const std::filesystem::path path = folder_ / "runs/first/a.model";
  AtomicFile file(path.string());
  file.write("complete");
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(read_file(path.string()), "complete");
}

TEST_F(AtomicFileTest, ABareNameIsWrittenToTheWorkingFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  write_file("page.html", "whole");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file(folder_ / "page.html"), "whole");
}

TEST_F(AtomicFileTest, RefusesAFolderAsTargetAndLeavesNothingBehind) {
  try {
    write_file(folder_.string(), "text");
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_EQ(error.what(), folder_.string() + ": is a folder; name a file");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  { AtomicFile(folder_ / "a").write("half"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(AtomicFileTest, AFolderThatCannotBeCreatedIsReportedWithThePath) {
  write_file(folder_ / "file", "not a folder");
  const std::string path = folder_ / "file/a";
  try {
    AtomicFile file(path);
    FAIL() << "a file inside a file";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), path + ": cannot create the folder: Not a directory");
  }
}

}  // namespace
}  // namespace tessera::io
