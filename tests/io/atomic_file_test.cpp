#include <filesystem>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>

namespace tessera::io {
namespace {

using AtomicFileTest = FolderTest;

TEST_F(AtomicFileTest, AppearsWithItsFoldersOnCommit) {
  const std::string name = path("runs/first/a.model");
  AtomicFile file(name);
  file.write("complete");
  EXPECT_FALSE(std::filesystem::exists(name));
  file.commit();
  EXPECT_EQ(read_file(name), "complete");
}

TEST_F(AtomicFileTest, ABareNameIsWrittenToTheWorkingFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  write_file("page.html", "whole");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file(folder_ / "page.html"), "whole");
}

TEST_F(AtomicFileTest, RefusesAFolderAsTargetAndLeavesNothingBehind) {
  EXPECT_EQ(error_of([&] { write_file(folder_.string(), "text"); }), folder_.string() + ": is a folder; name a file");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(AtomicFileTest, RefusesAPipeAsTarget) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { write_file(path("pipe"), "text"); }), path("pipe") + ": is not a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(AtomicFileTest, WritesTheFileThatALinkPointsTo) {
  write("real/file", "old");
  std::filesystem::create_symlink("real/file", path("link"));
  write_file(path("link"), "new");
  EXPECT_EQ(read_file(path("real/file")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  { AtomicFile(folder_ / "a").write("half"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(AtomicFileTest, AFolderThatCannotBeCreatedIsReportedWithThePath) {
  write("file", "not a folder");
  EXPECT_EQ(error_of([&] { AtomicFile file(path("file/a")); }),
            path("file/a") + ": cannot create the folder: Not a directory");
}

}  // namespace
}  // namespace tessera::io
