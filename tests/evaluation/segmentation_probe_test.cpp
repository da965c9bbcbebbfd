// The linear classifier of patches, with a model whose patches are known.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/evaluation/color_embedder.h"
#include <tessera/evaluation/embedder_view.h>
#include <tessera/evaluation/task.h>

namespace tessera {
namespace {

constexpr std::int64_t kSide = 64, kPatches = 16;

/// Sees a patch as its mean color, or all patches as the same.
class PatchColors final : public EmbedderView {
 public:
  PatchColors(const Embedder& embedder, bool blind) : EmbedderView(embedder), blind_(blind) {}
  const Preprocessing& preprocessing() const override { return preprocessing_; }
  config::Size grid() const override { return kPatches; }
  using Embedder::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override {
    TowerFeatures out = EmbedderView::images(pictures, needs);
    if (needs.encoder_tokens)
      out.encoder_tokens =
          at::avg_pool2d(pictures.pixels.to(at::kFloat), kSide / kPatches).flatten(2).transpose(1, 2) * (blind_ ? 0 : 1);
    return out;
  }

 private:
  bool blind_;
  Preprocessing preprocessing_ = [] {
    Preprocessing out;
    out.image_size = kSide;
    return out;
  }();
};

double score(const TaskResult& result, const std::string& name) {
  for (const auto& [metric, value] : result.metrics)
    if (metric == name) return value;
  return -1;
}

TaskResult probe(bool blind, const std::string& more = "") {
  const test::ColorEmbedder colors;
  const PatchColors embedder(colors, blind);
  const std::string yaml =
      "{name: segmentation_probe, train: {name: shapes, size: 60, label: color}, source: {name: shapes, split: test, size: 20, "
      "label: color}" + more + "}";
  const auto task = config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, "task.yaml"), "", {});
  EvaluationContext context;
  check_task(task, embedder, context);
  return run_task(task, embedder, context);
}

TEST(SegmentationProbe, FindsWhatPatchesTellApart) {
  const TaskResult seeing = probe(false), blind = probe(true);
  EXPECT_EQ(seeing.samples, 20);
  EXPECT_GT(score(seeing, "dataset_miou"), 0.3);
  EXPECT_GT(score(seeing, "pixel_accuracy"), score(blind, "pixel_accuracy"));
  EXPECT_LT(score(blind, "dataset_miou"), 0.05) << "every patch is background";
  EXPECT_NE(seeing.data.find("(fitted on 3,840 patches of"), std::string::npos) << seeing.data;
  EXPECT_EQ(seeing.metrics, probe(false).metrics);
}

TEST(SegmentationProbe, ClassesThatAreIgnoredCountNeitherInTheFitNorInTheScores) {
  const TaskResult all = probe(false), objects = probe(false, ", ignore: [background]");
  EXPECT_EQ(objects.data.find("3,840"), std::string::npos) << objects.data;
  EXPECT_EQ(score(objects, "dataset_miou_with_background"), -1) << "no class counts as background";
  EXPECT_GT(score(objects, "dataset_miou"), score(all, "dataset_miou")) << "nothing is lost to the background";
  EXPECT_GT(score(objects, "dataset_miou"), score(probe(true, ", ignore: [background]"), "dataset_miou"));
}

TEST(SegmentationProbe, AnIgnoredClassThatThereIsNotIsAnError) {
  EXPECT_THROW(probe(false, ", ignore: [sky]"), UserError);
}

TEST(SegmentationProbe, TakesSomePatchesOfEachImage) {
  const TaskResult few = probe(false, ", patches_per_image: 5, max_train_samples: 30");
  EXPECT_NE(few.data.find("(fitted on 150 patches of"), std::string::npos) << few.data;
}

TEST(SegmentationProbe, DataOfOtherClassesAreRefused) {
  EXPECT_THROW(probe(false, ", classes: [background, thing]"), UserError);
}

}  // namespace
}  // namespace tessera
