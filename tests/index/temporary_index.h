#pragma once

#include <string>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace tessera::index {

/// A fixture that gives each test its own folder.
class IndexTest : public FolderTest {
 protected:
  const std::string folder_ = FolderTest::folder_.string();
};

}  // namespace tessera::index
