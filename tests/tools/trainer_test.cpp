#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

TEST(TrainerProgram, ListsTheShippedConfigurations) {
  const Answer answer = answer_of("trainer --list-configs");
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.text.find("in " TESSERA_SOURCE_DIR "/configs, for --config:\n"), 0u) << answer.text;
  EXPECT_NE(answer.text.find("\nsparc/vitb16 "), std::string::npos) << answer.text;
}

TEST(TrainerProgram, SuggestsTheNearestNameForAMisspelledConfiguration) {
  const Answer answer = answer_of("trainer --config sparc_vit_b16.yaml --print-config");
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text,
            "trainer: sparc_vit_b16.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
            "/configs: did you mean sparc_vitb16?\n");
}

// Returns the YAML of a run that takes a few seconds. `data` adds keys to the section `data`, and `rest` adds sections.
std::string small_yaml(const std::filesystem::path& folder, const std::string& data, const std::string& rest) {
  return "run: {folder: " + (folder / "run").string() + R"(}
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

// As in the example of docs/training.md, one configuration first writes the features and then trains from them.
TEST(TrainerProgram, WritesFeaturesAndTrainsFromThem) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / concat("tessera_features_", ::getpid());
  fs::create_directories(folder);
  const std::string file = (folder / "lit.yaml").string(), features = (folder / "features").string();
  io::write_file(file, small_yaml(folder, "  features: {folder: " + features + ", dtype: float16}\n",
                                  "parameters: {frozen: [image]}\n"));
  const std::string run = "trainer --config " + file;
  const Answer early = answer_of(run), many = answer_of(run + " --write-features --nproc 2"),
               written = answer_of(run + " --write-features"), trained = answer_of(run);
  EXPECT_EQ(early.code, 2);
  EXPECT_NE(early.text.find("trainer: " + features + ": holds no features"), std::string::npos) << early.text;
  EXPECT_EQ(many.code, 2);
  EXPECT_NE(many.text.find("--write-features works in one process"), std::string::npos) << many.text;
  EXPECT_EQ(written.code, 0) << written.text;
  EXPECT_NE(written.text.find("written: " + features + ", 12 images of 32 B"), std::string::npos) << written.text;
  EXPECT_EQ(trained.code, 0) << trained.text;
  EXPECT_NE(trained.text.find("12 images in " + features + ", float16"), std::string::npos) << trained.text;
  fs::remove_all(folder);
}

TEST(TrainerMain, TrainsAndResumesWithAnObjectiveOfTheUser) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / concat("tessera_own_", ::getpid());
  fs::create_directories(folder);
  const std::string file = (folder / "own.yaml").string();
  io::write_file(file, small_yaml(folder, "", "objective: {name: my_distance, power: 1.5}\n"));
  const std::string program = "../tests/own_trainer", run = program + " --config " + file;

  const Answer help = answer_of(program + " --help"), plan = answer_of(run + " --dry-run"),
               wrong = answer_of(run + " --set objective.powr=2 --nproc 2"), ranks = answer_of(run + " --nproc 2"),
               resumed = answer_of(run + " --nproc 2 --set training.steps=3 --resume auto");
  EXPECT_NE(help.text.find("own_trainer --config configs/shapes/sparc.yaml --nproc 2"), std::string::npos) << help.text;
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.text.find("own_trainer: "), std::string::npos) << wrong.text;
  EXPECT_NE(wrong.text.find("did you mean power?"), std::string::npos) << wrong.text;
  EXPECT_EQ(ranks.code, 0) << ranks.text;
  EXPECT_NE(ranks.text.find("x 2 ranks"), std::string::npos) << ranks.text;
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find("step 2, "), std::string::npos) << resumed.text;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera
