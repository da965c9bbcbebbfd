// Tests the tasks that show single images: `query`, Grad-CAM and maps of features.
#include <algorithm>

#include "src/data/loading/evaluation_reader.h"
#include "tests/support/page_data.h"
#include "tests/evaluation/evaluate_fixture.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/inference.h>
#include <tessera/objectives/objective.h>
#include <tessera/ops/numeric.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

using EvaluateImages = Evaluate;

TEST_F(EvaluateImages, QueriesShowTheNearestImagesAndMeasureNothingElse) {
  options.queries = {"a red circle", "the blue square, of all"};
  options.data = "{name: shapes, split: test, size: 20}";
  EXPECT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks.at(0).at("task"), "query");
  EXPECT_EQ(tasks.at(0).at("samples"), 20);
  const auto found = tasks.at(0).at("readings").at("a red circle");
  ASSERT_EQ(found.size(), 6U);
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_LE(found.at(i).at("score"), found.at(i - 1).at("score"));
  const nlohmann::json sheets = page_data(io::read_file(options.out + "/report.html")).at("results").at(0).at("cards").at(0).at("items");
  EXPECT_EQ(sheets.at(1).at("quote"), "the blue square, of all");
  EXPECT_FALSE(sheets.at(1).contains("tag")) << "no image is known to be right";

  // The first result must be the image that is most similar to the text.
  const InferenceModel loaded = load_for_inference(options.checkpoint, "cpu");
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer);
  EvaluationReader reader(sources().make(source_from_text(options.data, "--data"), "source"), embedder.preprocessing(),
                          20, 1, -1);
  const auto samples = reader.next();
  std::vector<at::Tensor> pixels;
  for (const auto& sample : samples) pixels.push_back(sample.pixels);
  const auto best = embedder.similarity(embedder.encode_images(at::stack(pixels), {}), embedder.encode_texts({"a red circle"}, {}))
                        .squeeze(1)
                        .argmax()
                        .item<std::int64_t>();
  const std::string& nearest = samples[static_cast<std::size_t>(best)].sample.key;
  EXPECT_EQ(found.at(0).at("name"), nearest);
  EXPECT_EQ(sheets.at(0).at("images").at(0).at("name"), nearest) << "the page names the images";
}

TEST_F(EvaluateImages, QueryCanBeCombinedWithASuite) {
  write_suite("source: {name: shapes, split: test, size: 4}\ntasks: [zero_shot]\n");
  options.queries = {"a"};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(results().at("tasks").size(), 2U);
}

TEST_F(EvaluateImages, RejectsAQueryOfAModelWithoutTexts) {
  file.tokenizer.name.clear();
  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}",
             "text: null");
  options.queries = {"a dog"};
  EXPECT_EQ(
      error(),
      "query compares images with texts, but this model has no text tower: linear_probe and knn do not need one");
}

TEST_F(EvaluateImages, ReportShowsGradCamAndFeatureMaps) {
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "tasks: [{name: grad_cam, samples: 3}, {name: grad_cam, samples: 2, texts: [a red circle, blue]},\n"
      "  {name: feature_map, samples: 10}]\n");
  EXPECT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  for (std::size_t i : {0, 1}) {
    EXPECT_LE(tasks.at(i).at("metrics").at("mean_cosine"), 1) << i;
    EXPECT_LT(tasks.at(i).at("metrics").at("empty_maps"), 1) << i;
    EXPECT_EQ(tasks.at(i).at("readings").size(), 3 - i) << "the names of the images";
  }
  const double classes = static_cast<double>(tasks.at(2).at("classes").size());
  EXPECT_EQ(tasks.at(2).at("metrics").at("points"), 10 + classes);
  const nlohmann::json shown = page_data(io::read_file(options.out + "/report.html")).at("results");
  const nlohmann::json maps = shown.at(1).at("cards").at(0), map = shown.at(2).at("cards").at(0);
  EXPECT_EQ(maps.at("title"), "Grad-CAM");
  EXPECT_TRUE(contains(maps.at("items").at(0).at("images").at(1).at("caption").get<std::string>(), "a red circle \u00b7 "));
  EXPECT_EQ(map.at("plots").at(1).at("title"), "t-SNE");
  const nlohmann::json& points = map.at("plots").at(1).at("points");
  EXPECT_EQ(static_cast<double>(points.size()), 10 + classes);
  EXPECT_FALSE(points.front().at("is_text").get<bool>());
  EXPECT_TRUE(points.back().at("is_text").get<bool>());
  EXPECT_EQ(points.back().at("class"), classes - 1) << "the text of a class has its color";
}

/// Shows the words of "the red circles." on two images.
class Words : public Evaluate {
 protected:
  Words() {
    file.vocabulary += "##s\n.\n";
    save_model_file(options.checkpoint, file);
    context.source = sources().make(task_of("{name: shapes, split: test, size: 2}"), "source");
    context.images = true;
    context.out = folder_.string();
  }

  TaskResult run_words() {
    const DualEncoderEmbedder embedder(loaded().model, loaded().tokenizer);
    return check_and_run(task_of("{name: words, texts: [the red circles.]}"), embedder, context);
  }
  const InferenceModel& loaded() {
    if (!loaded_) loaded_ = load_for_inference(options.checkpoint, "cpu");
    return *loaded_;
  }
  /// Returns the features of the first image, and of a text.
  std::pair<TowerFeatures, TowerFeatures> features(const std::string& text) {
    const DualEncoderEmbedder embedder(loaded().model, loaded().tokenizer);
    const at::Tensor pixels = EvaluationReader(context.source, embedder.preprocessing(), 1, 1, 1).next().at(0).pixels;
    return {embedder.encode_images(pixels.unsqueeze(0), {.tokens = true, .dense = true}),
            embedder.encode_texts({text}, {.tokens = true})};
  }
  std::shared_ptr<Objective> use_objective(const std::string& yaml) {
    const auto objective = objectives().make(task_of(yaml), "objective", objective_context(*loaded().model));
    context.loss = std::make_shared<KeptObjective>(objective);
    return objective;
  }
  nlohmann::json words_json() const { return nlohmann::json::parse(io::read_file(context.out + "/words.json")); }
  /// Returns the map of a word over the first image of the result, which is the last one.
  at::Tensor drawn(const TaskResult& /*result*/, std::size_t word) const {
    return at::tensor(words_json().at(0).at("maps").at(word).at("weights").get<std::vector<float>>());
  }

  EvaluationContext context;

 private:
  std::optional<InferenceModel> loaded_;
};

TEST_F(Words, AreJoinedFromTokensAndUseTheWeightsOfSparc) {
  use_objective("{name: weighted_sum, objectives: [{name: clip}, {name: sparc, threshold: 0.4}]}");
  const TaskResult result = run_words();
  const nlohmann::json sheets = sheets_of(result, "Words");
  ASSERT_EQ(sheets.size(), 2U);
  EXPECT_EQ(sheets[0].at("quote"), "the red circles.");
  ASSERT_EQ(sheets[0].at("images").size(), 4U) << "the image and its maps; punctuation is no word";
  EXPECT_EQ(sheets[0].at("images")[3].at("caption"), "circles");
  const auto [image, text] = features("the red circles.");
  const at::Tensor weights = sparsify_weights(text.tokens, image.tokens, text.mask, {.threshold = 0.4})[0];
  EXPECT_TRUE(drawn(result, 1).allclose(weights[2])) << "after [CLS] and the";
  EXPECT_TRUE(drawn(result, 2).allclose((weights[3] + weights[4]) / 2)) << "circle and ##s";
  EXPECT_NEAR(drawn(result, 2).sum().item<double>(), 1, 1e-5);
  EXPECT_TRUE(contains(card_of(result, "Words").at("note").get<std::string>(), "sparc"));
  EXPECT_TRUE(result.notes.empty());
  const nlohmann::json json = words_json();
  EXPECT_EQ(json.at(0).at("key"), sheets[0].at("images")[0].at("name"));
  EXPECT_EQ(json.at(1).at("maps").at(2).at("word"), "circles");
}

TEST_F(Words, UseTheSimilaritiesOfFilipAndTheAttentionOfGloria) {
  const auto [image, text] = features("the red circles.");
  const at::Tensor words = text.tokens[0], patches = image.tokens[0];
  use_objective("{name: filip}");
  EXPECT_TRUE(drawn(run_words(), 1).allclose(unit_rows(patches).matmul(unit_rows(words)[2]), 1e-4, 1e-5));
  use_objective("{name: gloria, attention_temperature: 0.5}");
  EXPECT_TRUE(drawn(run_words(), 1)
                  .allclose((patches.matmul(words[2]) / std::sqrt(static_cast<double>(words.size(1))) / 0.5).softmax(0),
                            1e-4, 1e-5));
}

TEST_F(Words, AreTextsOfTheirOwnForPaclAndForPlainModels) {
  const auto [image, word] = features("circles");
  use_objective("{name: pacl, embedder: false, patch_temperature: 0.5}");
  const at::Tensor cosines = unit_rows(image.tokens[0]).matmul(unit_rows(word.global)[0]);
  EXPECT_TRUE(drawn(run_words(), 2).allclose((cosines / 0.5).softmax(0), 1e-4, 1e-5));
  context.loss = nullptr;
  const TaskResult plain = run_words();
  EXPECT_TRUE(drawn(plain, 2).allclose(unit_rows(image.dense[0]).matmul(unit_rows(word.global)[0]), 1e-4, 1e-5));
  EXPECT_TRUE(contains(plain.notes.at(0), "without an objective on words and patches")) << plain.notes.at(0);
}

TEST_F(Words, UnknownWordsAreSplitByTheTokensOwnSpaces) {
  use_objective("{name: sparc}");
  const DualEncoderEmbedder embedder(loaded().model, loaded().tokenizer);
  const TaskResult result =
      run_task(task_of("{name: words, samples: 1, texts: [the purple circle, '?!'], max_words: 2}"), embedder, context);
  const nlohmann::json sheets = sheets_of(result, "Words");
  ASSERT_EQ(sheets.size(), 2U);
  ASSERT_EQ(sheets[0].at("images").size(), 3U);
  EXPECT_EQ(sheets[0].at("images")[1].at("caption"), "the");
  EXPECT_EQ(sheets[1].at("images").size(), 1U) << "a text without words";
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
  const TowerFeatures texts = embedder.encode_texts({"a red circle", "the blue square"}, {});
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
