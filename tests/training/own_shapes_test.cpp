// Tests runs on images that keep their own shapes (model.preprocessing.resize_mode: naflex).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/memory/dry_run.h"
#include "src/training/run/image_features.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::vector<std::string> with_own_shapes(const std::vector<std::string>& more = {}, const std::string& objective = "{name: siglip}") {
  return with(overrides_of(objective + " with own shapes"), more);
}

std::string error_of_run(const std::vector<std::string>& overrides) {
  const TemporaryFolder folder;
  return error_of([&] { Trainer(tiny_config(folder / "run", overrides), "none").run(); });
}

using OwnShapesInTraining = RunTest;

TEST_F(OwnShapesInTraining, TakesThePatchSizeOfTheEncoderAndReadsBackTheSame) {
  const Config config = tiny_config("runs/x", with_own_shapes());
  ASSERT_TRUE(config.model.preprocessing.patch_size.has_value());
  EXPECT_EQ(*config.model.preprocessing.patch_size, config::Size(4));
  EXPECT_EQ(to_yaml(config), to_yaml(resolve_config(config::parse_yaml(to_yaml(config), "x"), "x")));
}

TEST_F(OwnShapesInTraining, RunIsEvaluatedAndItsLossMeasured) {
  Trainer(tiny_config(folder_ / "run", with_own_shapes({"data.validation.aspect=2", "evaluation={tasks: [{name: validation_loss}, {name: zero_shot, topk: [1]}, "
                                                       "{name: retrieval}, {name: segmentation}]}"})),
          "none")
      .run();
  const auto results = nlohmann::json::parse(io::read_file(folder_ / "run/evaluation/step_0000006.json")).at("tasks");
  ASSERT_EQ(results.size(), 4U);
  for (const auto& result : results) EXPECT_EQ(result.at("samples"), 16) << result.dump();
}

TEST_F(OwnShapesInTraining, DryRunMeasuresImagesWithTheMostPatches) {
  const DryRunReport cost = dry_run(tiny_config(folder_ / "run", with_own_shapes()));
  EXPECT_GT(cost.memory.activations, 0);
  EXPECT_TRUE(cost.memory.fits());
}

TEST_F(OwnShapesInTraining, ReportsUnsupportedSettings) {
  EXPECT_TRUE(contains(error_of_run(with_own_shapes({"training.cuda_graph=true"})),
                       "training.cuda_graph: is true, but a recorded step needs a fixed shape, and with "
                       "model.preprocessing.resize_mode: naflex"));
  EXPECT_TRUE(contains(error_of_run(with_own_shapes({}, "{name: sparc}")),
                       "objective sparc needs the same number of patches in all images"));
  EXPECT_TRUE(contains(error_of_run(with_own_shapes({"model.image.encoder.patch_dropout=0.5"})),
                       "patch_dropout does not support images of varying shapes"));
  EXPECT_TRUE(contains(error_of([&] {
                         write_image_features(
                             tiny_config(folder_ / "run",
                                         with_own_shapes({"data.features={folder: " + (folder_ / "features") + "}"})));
                       }),
                       "data.features: features need images of one size"));
}

}  // namespace
}  // namespace tessera
