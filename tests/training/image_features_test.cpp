// Tests runs that have a frozen image encoder and train on image features that are computed only once.
#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/memory/dry_run.h"
#include "src/training/run/image_features.h"
#include "src/training/trainer.h"
#include "tests/support/test_name.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

Weights trained(const Config& config, const std::string& resume = "none") {
  Trainer trainer(config, resume);
  trainer.run();
  return collect_weights(*trainer.training_run().model, *trainer.training_run().objective);
}

class ImageFeatures : public ::testing::TestWithParam<const char*> {
 protected:
  Config live(const std::string& kind, const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return frozen_config(kind, folder_.path(), run, overrides);
  }
  Config cached(const std::string& kind, const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return cached_config(kind, folder_.path(), run, overrides);
  }
  std::string features() const { return folder_ / "features"; }
  /// Returns the error message of a run that has these overrides and reads existing features.
  std::string error_with(const std::vector<std::string>& overrides) const {
    return error_of([&] { Trainer(cached("{name: clip}", "wrong", overrides), "none"); });
  }

  TemporaryFolder folder_;
};

using EveryObjective = ImageFeatures;

TEST_P(EveryObjective, TrainsOnFeaturesAsWithTheFrozenEncoder) {
  const std::string kind = GetParam();
  write_image_features(cached(kind, "cached"));
  const Weights ours = trained(cached(kind, "cached")), theirs = trained(live(kind, "live"));
  expect_same_curve(folder_ / "cached", folder_ / "live", 1e-5, 0);
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(at::allclose(ours.at(name), tensor, 1e-3, 1e-4)) << name;
}

INSTANTIATE_TEST_SUITE_P(Objectives, EveryObjective,
                         ::testing::Values("{name: clip}", "{name: siglip}", "{name: sparc}", "{name: filip}",
                                           "{name: pacl}", "{name: gloria}", "{name: mgca, num_prototypes: 5}", "stair",
                                           "text_group", "dino", "pyramidclip", "{name: clip, mask_duplicates: true}"),
                         test_name<const char*>);

// If no objective needs patches and the ViT's read-out uses only the class token, only this token is stored.
TEST_F(ImageFeatures, KeepOnlyWhatTheObjectiveAndTheReadOutNeed) {
  const auto names = [&](const std::string& kind, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> out;
    for (const FeatureTensor& tensor : write_image_features(cached(kind, "run", overrides)).tensors)
      out.push_back(concat(tensor.name, at::IntArrayRef(tensor.shape)));
    return c10::Join(" ", out);
  };
  EXPECT_EQ(names("{name: clip}"), "class_token[16]");
  EXPECT_EQ(names("{name: clip}", {"model.image.readout={name: gap}"}), "class_token[16] tokens[4, 16]");
  EXPECT_EQ(names("{name: filip}"), "class_token[16] tokens[4, 16]");
  EXPECT_EQ(names("text_group"), "tokens[2, 16]");
}

TEST_F(ImageFeatures, HalfPrecisionOnDiskTrainsAboutTheSame) {
  trained(live("{name: clip}", "live"));
  for (const char* dtype : {"bfloat16", "float16"}) {
    const std::vector<std::string> as = {concat("data.features.dtype=", dtype)};
    EXPECT_EQ(write_image_features(cached("{name: clip}", dtype, as)).dtype, dtype);
    trained(cached("{name: clip}", dtype, as));
    expect_same_curve(folder_ / dtype, folder_ / "live", 2e-2, 0);
  }
}

TEST_F(ImageFeatures, TrainWithMicroBatches) {
  const std::map<std::string, std::string> kinds = {{"sparc", "{name: sparc}"}, {"text_group", "text_group"}};
  for (const auto& [name, kind] : kinds) {
    write_image_features(cached(kind, "cached"));
    trained(cached(kind, name + "_parts", {"training.micro_batch=3"}));
    trained(live(kind, name + "_live"));
    expect_same_curve(folder_ / (name + "_parts"), folder_ / (name + "_live"), 1e-4, 0);
  }
}

TEST_F(ImageFeatures, ResumeBitForBitAfterTheirFolderMoved) {
  const std::string kind = "{name: sparc}";
  write_image_features(cached(kind, "whole"));
  const Weights unbroken = trained(cached(kind, "whole"));
  std::filesystem::rename(features(), folder_ / "moved");
  const Weights resumed = trained(cached(kind, "again", {"data.features.folder=" + (folder_ / "moved")}),
                                  folder_ / "whole/checkpoints/step_0000003");
  expect_equal(resumed, unbroken);
}

// Only training uses the cached features. The model is complete, so evaluation passes images to it.
TEST_F(ImageFeatures, EvaluationDuringTheRunUsesImages) {
  const std::vector<std::string> measured = {"evaluation.tasks=[{name: retrieval}]"};
  write_image_features(cached("{name: clip}", "cached", measured));
  trained(cached("{name: clip}", "cached", measured));
  trained(live("{name: clip}", "live", measured));
  const auto result = [&](const char* run) {
    std::ifstream file(folder_ / concat(run, "/evaluation/step_0000006.json"));
    return nlohmann::json::parse(file).at("tasks").at(0).at("metrics");
  };
  EXPECT_EQ(result("cached"), result("live"));
}

TEST_F(ImageFeatures, SkipAndListImagesWithoutFeatures) {
  write_image_features(cached("{name: clip}", "few", {"data.train.size=32"}));
  trained(cached("{name: clip}", "run", {"data.loader.max_bad_share=1", "data.loader.shuffle=false"}));
  const auto skipped = json_lines(folder_ / "run/skipped.jsonl");
  EXPECT_FALSE(skipped.empty());
  for (const auto& line : skipped) EXPECT_EQ(line["reason"], "no_features");
}

TEST_F(ImageFeatures, ReportEachMismatchInOneLine) {
  const std::string again = "; write them again with trainer --write-features, or name another folder";
  EXPECT_EQ(error_with({}),
            features() +
                ": holds no features, or not all of them (features.json is written last): write them with "
                "trainer --write-features");
  write_image_features(cached("{name: clip}", "cached"));
  EXPECT_EQ(error_with({}), "no error");
  EXPECT_EQ(error_with({"seed=4"}),
            "data.features: " + features() + " holds features of an image encoder with other weights" + again);
  EXPECT_EQ(
      error_with({"data.train.seed=1"}),
      "data.features: " + features() +
          " was written for other images (shapes train, 40 samples): it holds no features of the samples checked "
          "of shapes train, 40 samples; write them again with trainer --write-features");
  EXPECT_EQ(error_with({"model.image.encoder.heads=4", "model.preprocessing.interpolation=bilinear"}),
            "data.features: " + features() +
                " holds features made with other settings: model.image.encoder.heads: 2 there, 4 here; "
                "model.preprocessing.interpolation: bicubic there, bilinear here" +
                again);
  EXPECT_EQ(error_with({"data.features.dtype=bfloat16"}),
            "data.features: " + features() +
                " holds features made with other settings: data.features.dtype: float32 there, bfloat16 here" + again);
  EXPECT_EQ(error_with({"objective={name: filip}"}),
            "data.features: " + features() +
                " has no tokens of the images, which the objective filip or the image read-out needs" + again);
  EXPECT_EQ(
      error_with({"parameters.frozen=[visual.conv1.*]"}),
      "data.features: the image encoder is trained (visual.class_embedding), but features need a frozen one: "
      "name it in parameters.frozen, or set data.features to null");
  EXPECT_EQ(
      error_with({"model.image.encoder.patch_dropout=0.5"}),
      "data.features: the image encoder draws random numbers at each step, but stored features never change: set its "
      "patch_dropout and drop_path to 0");
  EXPECT_EQ(error_with({"data.loader.augmentation.crop=random"}),
            "data.features: the image view image is a random crop, but features are of whole images: set "
            "data.loader.augmentation to {crop: evaluation}");
  EXPECT_EQ(error_of([&] { live("{name: clip}", "run", {"data.features={dtype: float32}"}); }),
            "--set: data.features.folder: missing: name the folder, say runs/features");
  EXPECT_EQ(error_of([&] { write_image_features(live("{name: clip}", "run")); }),
            "--write-features: data.features.folder is not set: name a folder there");
}

TEST_F(ImageFeatures, AreCountedByTheDryRun) {
  const std::vector<std::string> large = {"model.image.encoder.layers=6"};
  write_image_features(cached("{name: clip}", "cached", large));
  const DryRunReport cheap = dry_run(cached("{name: clip}", "cached", large), {}),
                     dear = dry_run(live("{name: clip}", "live", large), {});
  EXPECT_LT(cheap.memory.tower_flops, 0.7 * dear.memory.tower_flops);
  EXPECT_LT(cheap.memory.data, dear.memory.data);
}

}  // namespace
}  // namespace tessera
