#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace tessera {
namespace {

TEST(TrainerProgram, ListsTheConfigurationsThatShip) {
  const Answer answer = answer_of("trainer --list-configs");
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.text.find("in " TESSERA_SOURCE_DIR "/configs, for --config:\n"), 0u) << answer.text;
  EXPECT_NE(answer.text.find("\nsparc_vitb16 "), std::string::npos) << answer.text;
}

TEST(TrainerProgram, AMisspeltConfigurationNamesTheNearest) {
  const Answer answer = answer_of("trainer --config sparc_vit_b16.yaml --print-config");
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text,
            "trainer: sparc_vit_b16.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
            "/configs: did you mean sparc_vitb16?\n");
}

}  // namespace
}  // namespace tessera
