// Tests the tasks that show single images: `query`, Grad-CAM and maps of features.
#include <algorithm>

#include "tests/evaluation/evaluate_fixture.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

using EvaluatePictures = Evaluate;

TEST_F(EvaluatePictures, QueriesShowTheNearestImagesAndMeasureNothingElse) {
  options.queries = {"a red circle", "the blue square, of all"};
  options.data = "{name: shapes, split: test, size: 20}";
  EXPECT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks.at(0).at("task"), "query");
  EXPECT_EQ(tasks.at(0).at("samples"), 20);
  const std::string keys = tasks.at(0).at("readings").at("a red circle");
  EXPECT_EQ(std::count(keys.begin(), keys.end(), ','), 5) << "expected six images: " << keys;
  const std::string html = io::read_file(options.out + "/report.html");
  EXPECT_TRUE(contains(html, "<q>the blue square, of all</q>"));

  // The first result must be the image that is most similar to the text.
  const InferenceModel loaded = load_for_inference(options.checkpoint, "cpu");
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer);
  EvaluationReader reader(sources().make(source_from_text(options.data, "--data"), "source"), embedder.preprocessing(),
                          20, 1, -1);
  const auto samples = reader.next();
  std::vector<at::Tensor> pixels;
  for (const auto& sample : samples) pixels.push_back(sample.pixels);
  const auto best = embedder.similarity(embedder.images(at::stack(pixels), {}), embedder.texts({"a red circle"}, {}))
                        .squeeze(1)
                        .argmax()
                        .item<std::int64_t>();
  EXPECT_EQ(keys.find(samples[static_cast<std::size_t>(best)].sample.key + " "), 0U) << keys;
}

TEST_F(EvaluatePictures, QueryCanBeCombinedWithASuite) {
  write_suite("source: {name: shapes, split: test, size: 4}\ntasks: [zero_shot]\n");
  options.queries = {"a"};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(results().at("tasks").size(), 2U);
}

TEST_F(EvaluatePictures, RejectsAQueryOfAModelWithoutTexts) {
  file.tokenizer.name.clear();
  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}",
             "text: null");
  options.queries = {"a dog"};
  EXPECT_EQ(
      error(),
      "query compares images with texts, but this model has no text tower: linear_probe and knn do not need one");
}

TEST_F(EvaluatePictures, ReportShowsGradCamAndFeatureMaps) {
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "tasks: [{name: grad_cam, samples: 3}, {name: grad_cam, samples: 2, texts: [a red circle, blue]},\n"
      "  {name: feature_map, samples: 10}]\n");
  EXPECT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  for (std::size_t i : {0, 1}) {
    EXPECT_LE(tasks.at(i).at("metrics").at("mean_cosine"), 1) << i;
    EXPECT_LT(tasks.at(i).at("metrics").at("empty_maps"), 1) << i;
  }
  const double classes = static_cast<double>(tasks.at(2).at("classes").size());
  EXPECT_EQ(tasks.at(2).at("metrics").at("points"), 10 + classes);
  const std::string html = io::read_file(options.out + "/report.html");
  EXPECT_TRUE(contains(html, "a red circle &middot;"));
  EXPECT_TRUE(contains(html, "<h3>Grad-CAM</h3>"));
  EXPECT_TRUE(contains(html, ">t-SNE</h3>"));
  EXPECT_TRUE(contains(html, "<circle"));
}

/// The parameters are an image tower in YAML and the image size. If the tower reads out only its class token, Grad-CAM uses the input of
/// the last block, otherwise the output of the encoder.
class Relevance : public Evaluate, public ::testing::WithParamInterface<std::pair<const char*, std::int64_t>> {};

TEST_P(Relevance, FollowsTheTextAndKeepsTheModelUnchanged) {
  const auto [image, side] = GetParam();
  file.model = config::read<ModelSettings>(
      config::parse_yaml(concat(image, "\n", kTextTower, "\npreprocessing: {image_size: ", side, "}\n"), "model.yaml"));
  file.weights = DualEncoder(file.model).state_dict();
  save_model_file(options.checkpoint, file);
  const InferenceModel loaded = load_for_inference(options.checkpoint, "cpu");
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer);
  at::manual_seed(2);
  const at::Tensor pixels = at::randint(0, 256, {2, 3, side, side}, at::kByte);
  const TowerFeatures texts = embedder.texts({"a red circle", "the blue square"}, {});
  const at::Tensor maps = embedder.relevance(pixels, texts);
  EXPECT_EQ(maps.sizes(), (std::vector<std::int64_t>{2, embedder.grid().height, embedder.grid().width}));
  EXPECT_TRUE(maps.ge(0).all().item<bool>());
  EXPECT_GT(maps.max().item<double>(), 0) << "the gradient reaches the map";
  TowerFeatures swapped = texts;
  swapped.global = texts.global.flip(0);
  EXPECT_FALSE(embedder.relevance(pixels, swapped).allclose(maps)) << "another text gives another map";
  EXPECT_TRUE(embedder.relevance(pixels.slice(0, 1), {.global = texts.global.slice(0, 1)}).allclose(maps.slice(0, 1)))
      << "images do not affect each other";
  for (const at::Tensor& parameter : loaded.model->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(
    Encoders, Relevance,
    ::testing::Values(std::pair("image: {encoder: {name: vit, patch_size: 8, width: 32, layers: 2, heads: 2}}", 32),
                      std::pair("image: {encoder: {name: vit, patch_size: 8, width: 32, layers: 1, heads: 2}, readout: "
                                "{name: gap}}",
                                32),
                      std::pair("image: {encoder: {name: modified_resnet, width: 4, layers: [1, 1, 1, 1]}, readout: "
                                "{name: attention_pool_2d, heads: 4, output_dim: 512}, projection: {name: none}}",
                                64)));

}  // namespace
}  // namespace tessera
