#include <filesystem>

#include <gtest/gtest.h>

#include "src/io/mapped_file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace tessera::io {
namespace {

using ScratchFileTest = FolderTest;

TEST_F(ScratchFileTest, ReturnsWhatWasAppendedAndLeavesNoFileBehind) {
  {
    ScratchFile file(path("made"));
    file.append("rows ");
    file.append("and rows");
    EXPECT_EQ(file.size(), 13U);
    EXPECT_EQ(file.bytes(), "rows and rows");
    EXPECT_TRUE(std::filesystem::is_empty(path("made"))) << "the file has no name, so a crash cannot leave it behind";
  }
  EXPECT_EQ(ScratchFile(path("made")).bytes(), "");
}

TEST_F(ScratchFileTest, AFolderThatCannotBeCreatedIsReported) {
  const std::string folder = write("file", "no folder") + "/folder";
  const std::string error = error_of([&] { ScratchFile inside(folder); });
  EXPECT_TRUE(error.starts_with(folder + ": cannot create the folder: ")) << error;
}

}  // namespace
}  // namespace tessera::io
