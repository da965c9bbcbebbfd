// What all programs have in common on their command lines.
#include <gtest/gtest.h>

#include "tests/support/program.h"
#include <tessera/base/version.h>

namespace tessera {
namespace {

constexpr const char* kPrograms[] = {"evaluate",     "tessera-bench", "tessera-convert", "tessera-data",
                                     "tessera-embed", "tessera-index", "tessera-probe",   "tessera-report", "trainer"};

TEST(CommandLine, EveryProgramTellsItsVersion) {
  for (const std::string program : kPrograms) {
    const Answer answer = answer_of(program + " --version");
    EXPECT_EQ(answer.code, 0) << program;
    EXPECT_EQ(answer.text, version_line() + "\n") << program;
  }
}

}  // namespace
}  // namespace tessera
