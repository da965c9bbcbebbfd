// This test is a separate executable because other tests register modules, which would show up in the document.
#include <gtest/gtest.h>

#include <tessera/io/atomic_file.h>
#include <tessera/training/config/config.h>

namespace tessera {
namespace {

TEST(ConfigurationDocument, IsCurrent) {
  EXPECT_TRUE(io::read_file(TESSERA_SOURCE_DIR "/docs/configuration.md") == configuration_document())
      << "run: build/bin/trainer --write-configuration-doc docs/configuration.md";
}

}  // namespace
}  // namespace tessera
