#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "src/base/host.h"
#include "src/io/file_lock.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>

namespace tessera::io {
namespace {

class FileLockTest : public FolderTest {
 protected:
  const std::string path_ = path("a.lock");
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
  const std::string nowhere = path("nowhere/a.lock");
  EXPECT_EQ(error_of([&] { FileLock::take(nowhere, holder_); }),
            nowhere + ": cannot open the lock: No such file or directory");
}

}  // namespace
}  // namespace tessera::io
