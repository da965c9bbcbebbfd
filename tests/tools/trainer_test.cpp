#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

TEST(TrainerProgram, ListsTheShippedConfigurations) {
  const std::string text = output_of("trainer --list-configs");
  EXPECT_TRUE(text.starts_with("in " TESSERA_SOURCE_DIR "/configs, for --config:\n")) << text;
  EXPECT_NE(text.find("\nsparc/vitb16 "), std::string::npos) << text;
}

TEST(TrainerProgram, SuggestsTheNearestNameForAMisspelledConfiguration) {
  expect_refused("trainer --config sparc_vit_b16.yaml --print-config",
                 "trainer: sparc_vit_b16.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
                 "/configs: did you mean sparc_vitb16?");
}

// Returns the YAML of a run that takes a few seconds. `data` adds keys to the section `data`, and `rest` adds sections.
std::string small_yaml(const std::string& folder, const std::string& data, const std::string& rest) {
  return "run: {folder: " + folder + R"(}
data:
  train: {name: shapes, size: 12, image_size: 16}
  loader: {batch_size: 4, augmentation: {crop: evaluation}}
)" + data + R"(tokenizer:
  name: clip-bpe
  context_length: 16
  merges: )" TESSERA_SOURCE_DIR R"(/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz
model:
  preprocessing: {image_size: 16}
  image:
    encoder: {name: vit, patch_size: 8, width: 16, layers: 1, heads: 2}
    readout: {name: cls}
    projection: {name: linear, embed_dim: 8}
  text:
    encoder: {name: text_transformer, width: 16, layers: 1, heads: 2}
    readout: {name: eos}
    projection: {name: linear, embed_dim: 8}
training: {steps: 2, device: cpu}
log: {peak_tflops: 0.1}
)" + rest;
}

using SmallRun = FolderTest;

// As in the example of docs/training.md, one configuration first writes the features and then trains from them.
TEST_F(SmallRun, WritesFeaturesAndTrainsFromThem) {
  const std::string features = path("features");
  const std::string run = "trainer --config " + write("lit.yaml", small_yaml(path("run"),
                                                                             "  features: {folder: " + features + ", dtype: float16}\n",
                                                                             "parameters: {frozen: [image]}\n"));
  const std::string early = refusal_of(run), many = refusal_of(run + " --write-features --nproc 2"),
                    written = output_of(run + " --write-features"), trained = output_of(run);
  EXPECT_NE(early.find("trainer: " + features + ": holds no features"), std::string::npos) << early;
  EXPECT_NE(many.find("--write-features works in one process"), std::string::npos) << many;
  EXPECT_NE(written.find("written: " + features + ", 12 images of 32 B"), std::string::npos) << written;
  EXPECT_NE(trained.find("12 images in " + features + ", float16"), std::string::npos) << trained;
}

// If sentencepiece's initializer overwrote variables of c10 (src/CMakeLists.txt prevents this), LibTorch would abort in this test.
TEST(TrainerProgram, AModelLargerThanTheMemoryIsReportedInOneLine) {
  const Answer answer = answer_of_shell("ulimit -d 4000000; " TESSERA_BINARY_DIR "/bin/trainer --config shapes/sparc --dry-run --set "
                                        "data.train.size=8 model.image.encoder.width=100000");
  EXPECT_EQ(answer.code, 2) << answer.text;
  EXPECT_TRUE(answer.text.starts_with("trainer: model: the weights need more than ")) << answer.text;
  EXPECT_NE(answer.text.find("; the largest settings are model.image.encoder.width 100000, "), std::string::npos) << answer.text;
  EXPECT_EQ(std::ranges::count(answer.text, '\n'), 1) << answer.text;
}

TEST_F(SmallRun, TrainsAndResumesWithAnObjectiveOfTheUser) {
  const std::string program = "../tests/own_trainer";
  const std::string run =
      program + " --config " + write("own.yaml", small_yaml(path("run"), "", "objective: {name: my_distance, power: 1.5}\n"));
  const Answer help = answer_of(program + " --help");
  EXPECT_NE(help.text.find("own_trainer --config configs/shapes/sparc.yaml --nproc 2"), std::string::npos) << help.text;
  output_of(run + " --dry-run");
  const std::string wrong = refusal_of(run + " --set objective.powr=2 --nproc 2"), ranks = output_of(run + " --nproc 2"),
                    resumed = output_of(run + " --nproc 2 --set training.steps=3 --resume auto");
  EXPECT_NE(wrong.find("own_trainer: "), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("did you mean power?"), std::string::npos) << wrong;
  EXPECT_NE(ranks.find("x 2 ranks"), std::string::npos) << ranks;
  EXPECT_NE(resumed.find("step 2, "), std::string::npos) << resumed;
}

}  // namespace
}  // namespace tessera
