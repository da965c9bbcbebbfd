#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/scratch_file.h>

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

TEST(ScratchFile, ReturnsWhatWasAppendedAndLeavesNoFileBehind) {
  const fs::path folder = fs::temp_directory_path() / concat("tessera_scratch_", ::getpid()) / "made";
  {
    ScratchFile file(folder.string());
    file.append("rows ");
    file.append("and rows");
    EXPECT_EQ(file.size(), 13U);
    EXPECT_EQ(file.bytes(), "rows and rows");
    EXPECT_TRUE(fs::is_empty(folder)) << "the file has no name, so a crash cannot leave it behind";
  }
  EXPECT_EQ(ScratchFile(folder.string()).bytes(), "");
  fs::remove_all(folder.parent_path());
}

TEST(ScratchFile, AFolderThatCannotBeCreatedIsReported) {
  const std::string file = (fs::temp_directory_path() / concat("tessera_scratch_file_", ::getpid())).string();
  write_file(file, "no folder");
  try {
    ScratchFile inside(file + "/folder");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(file + "/folder: cannot create the folder: ")) << error.what();
  }
  fs::remove(file);
}

}  // namespace
}  // namespace tessera::io
