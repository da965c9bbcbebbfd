#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/host.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/file_lock.h>

namespace tessera::io {
namespace {

class FileLockTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera_file_lock_" + std::to_string(::getpid()));
  const std::string path_ = (folder_ / "a.lock").string();
  std::string holder_;
};

TEST_F(FileLockTest, ASecondTakerLearnsWhoHoldsTheLock) {
  const auto first = FileLock::take(path_, holder_);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(holder_, "");
  EXPECT_EQ(FileLock::take(path_, holder_), nullptr);
  EXPECT_EQ(holder_.find(concat("process ", ::getpid(), " on ", host_name(), ", since 20")), 0u) << holder_;
}

TEST_F(FileLockTest, IsFreeAndNamesNobodyAfterRelease) {
  FileLock::take(path_, holder_).reset();
  EXPECT_EQ(read_file(path_), "");
  EXPECT_NE(FileLock::take(path_, holder_), nullptr);
}

TEST_F(FileLockTest, ARefusedTakerLeavesTheHoldersEntry) {
  const auto first = FileLock::take(path_, holder_);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(FileLock::take(path_, holder_), nullptr);
  EXPECT_NE(read_file(path_), "");
}

TEST_F(FileLockTest, IsFreeAfterItsHolderIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::take(path_, holder_);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(FileLock::take(path_, holder_), nullptr);
  EXPECT_EQ(holder_.find(concat("process ", child, " on ")), 0u) << holder_;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_NE(FileLock::take(path_, holder_), nullptr);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FileLockTest, AMissingFolderIsReportedInOneLine) {
  const std::string nowhere = (folder_ / "nowhere/a.lock").string();
  try {
    FileLock::take(nowhere, holder_);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), nowhere + ": cannot open the lock: No such file or directory");
  }
}

}  // namespace
}  // namespace tessera::io
