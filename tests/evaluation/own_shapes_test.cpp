// Tests the evaluation of models whose images keep their shapes (model.preprocessing.resize_mode: naflex).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/patches.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/shapes/shapes.h"
#include "tests/evaluation/letter_tokenizer.h"
#include "tests/evaluation/task_case.h"
#include <tessera/data/image/transforms.h>
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

class OwnShapesInEvaluation : public ::testing::Test {
 protected:
  OwnShapesInEvaluation() {
    at::manual_seed(1);
    const config::Node tree = config::parse_yaml(
        "image: {encoder: {name: vit, patch_size: 8, width: 16, layers: 2, heads: 2}, readout: gap}\n"
        "text: {encoder: {name: text_transformer, vocab_size: 64, context_length: 16, width: 16, layers: 1, heads: 2}}\n"
        "preprocessing: {image_size: 32, resize_mode: naflex, max_patches: 18}\n",
        "model.yaml");
    model = std::make_shared<DualEncoder>(config::read<ModelSettings>(tree));
    ShapesSettings shapes;
    shapes.size = 30;
    shapes.image_size = 32;
    shapes.aspect = 3;
    source = std::make_shared<ShapesSource>(shapes);
    context.source = source;
    context.batch_size = 4;
  }

  TaskResult run(const std::string& yaml) { return run_task(task_of(yaml), DualEncoderEmbedder(model, tokenizer), context); }

  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<ShapesSource> source;
  std::shared_ptr<LetterTokenizer> tokenizer = std::make_shared<LetterTokenizer>();
  EvaluationContext context;
};

TEST_F(OwnShapesInEvaluation, EmbedsBatchesLikeSingleImages) {
  const DualEncoderEmbedder embedder(model, tokenizer);
  EvaluationReader reader(source, embedder.preprocessing(), 7, 2);
  std::vector<TowerFeatures> batches;
  std::set<std::pair<std::int64_t, std::int64_t>> sizes;
  std::vector<at::Tensor> alone;
  for (auto samples = reader.next(); !samples.empty(); samples = reader.next()) {
    std::vector<at::Tensor> pixels;
    for (const EvaluationSample& sample : samples) {
      pixels.push_back(sample.pixels);
      sizes.emplace(sample.pixels.size(1), sample.pixels.size(2));
      alone.push_back(embedder.encode_images(sample.pixels.unsqueeze(0), {}).global);
    }
    batches.push_back(embedder.encode_images(image_batch(pixels, embedder.preprocessing()), {.dense = true}));
  }
  EXPECT_GT(sizes.size(), 4U);
  const TowerFeatures all = joined(batches);
  EXPECT_EQ(all.dense.sizes(), (at::IntArrayRef{30, 18, model->embed_dim()}));
  EXPECT_LE((all.global - at::cat(alone)).abs().max().item<double>(), 1e-5);
}

TEST_F(OwnShapesInEvaluation, ZeroShotAndRetrievalUseAllImages) {
  EXPECT_EQ(run("{name: zero_shot, topk: [1]}").samples, 30);
  EXPECT_EQ(run("{name: retrieval}").samples, 30);
}

// Batches of one image must have the same result as larger batches.
TEST_F(OwnShapesInEvaluation, SegmentationMapsPatchesToThePixelsOfTheirImage) {
  const TaskResult whole = run("{name: segmentation}");
  EXPECT_EQ(whole.samples, 30);
  context.batch_size = 1;
  EXPECT_EQ(run("{name: segmentation}").metrics, whole.metrics);
  EXPECT_GT(whole.metrics.at(0).second, 0);
  EXPECT_EQ(run("{name: segmentation, windows: {short_side: 48}}").samples, 30);
}

TEST_F(OwnShapesInEvaluation, RejectTasksThatNeedOneGrid) {
  const DualEncoderEmbedder embedder(model, tokenizer);
  EXPECT_TRUE(contains(error_of([&] { embedder.grid(); }), "images keep their shapes"));
}

}  // namespace
}  // namespace tessera
