// Tests the tasks `captions` and `referring` with a small decoder that has memorized the images.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/objectives/captioning.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder_view.h>

namespace tessera {
namespace {

/// Encodes words between a begin and an end token.
class WordTokenizer final : public Tokenizer {
 public:
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids = {1};
    for (const std::string& word : split(std::string(text), ' '))
      for (std::size_t i = 0; i < words_.size(); ++i)
        if (word == words_[i]) ids.push_back(static_cast<std::int64_t>(i) + 3);
    ids.push_back(2);
    return ids;
  }
  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::string out;
    for (const std::int64_t id : ids)
      if (id > 2) out += (out.empty() ? "" : " ") + words_[static_cast<std::size_t>(id) - 3];
    return out;
  }
  std::int64_t vocab_size() const override { return 3 + std::ssize(words_); }
  std::int64_t context_length() const override { return 8; }
  std::int64_t pad_id() const override { return 0; }
  std::vector<std::int64_t> special_ids() const override { return {0, 1, 2}; }
  std::string name() const override { return "words"; }
  const std::string& vocabulary_bytes() const override { return name_; }

 private:
  std::vector<std::string> words_ = {"a", "the", "red", "green", "box", "up", "down", "here"};
  std::string name_ = "words";
};

/// Embeds an 8 x 8 image as four tokens, one for each quarter.
class QuarterEmbedder final : public EmbedderView {
 public:
  QuarterEmbedder() : EmbedderView(colors_) {}
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    const at::Tensor& pixels = images.pixels;
    TowerFeatures out = colors_.encode_images(images, needs);
    const at::Tensor quarters = at::avg_pool2d(pixels.to(at::kFloat) / 100, {4, 4}).flatten(2).transpose(1, 2);  // [B, 4, 3]
    if (needs.encoder_tokens)
      out.encoder_tokens = at::cat({quarters, at::eye(4).unsqueeze(0).expand({pixels.size(0), 4, 4})}, 2);
    return out;
  }
  const Tokenizer* tokenizer() const override { return &tokenizer_; }

 private:
  test::ColorEmbedder colors_;
  WordTokenizer tokenizer_;
};

/// Black images, each with a colored box. The last image is 16 pixels wide, and evaluation crops it to its middle.
class BoxedImages final : public IndexedSource {
 public:
  std::int64_t size() const override { return 4; }
  Sample get(std::int64_t index) const override {
    const bool wide = index == 3, green = index % 2 == 1;
    const std::int64_t top = index < 2 ? 0 : 4, left = wide ? 8 : index * 4 % 8;
    Sample sample;
    sample.key = concat("picture", index);
    sample.captions = {concat("a ", green ? "green" : "red", " box ", top == 0 ? "up" : "down", " here")};
    if (index == 0) sample.captions.push_back("the red box");
    sample.image = {8, wide ? 16 : 8, {}};
    sample.image.pixels.resize(static_cast<std::size_t>(3 * 8 * sample.image.width));
    for (std::int64_t y = top; y < top + 4; ++y)
      for (std::int64_t x = left; x < left + 4; ++x)
        sample.image.pixels[static_cast<std::size_t>(3 * (y * sample.image.width + x) + (green ? 1 : 0))] = 200;
    sample.objects.push_back({.box = {top, left, 4, 4}, .phrase = "the box"});
    if (wide) sample.objects.push_back({.box = {0, 0, 4, 3}, .phrase = "out of sight"});
    sample.objects.push_back({.phrase = "without a box"});
    return sample;
  }
  std::string describe() const override { return "boxed pictures"; }
};

/// Trains the objective on one batch with plain Adam (Kingma and Ba 2015) until it has memorized the batch.
void learn_by_heart(Objective& objective, const Features& features, int steps) {
  const std::vector<at::Tensor> parameters = objective.parameters();
  std::vector<at::Tensor> first, second;
  for (const at::Tensor& parameter : parameters) {
    first.push_back(at::zeros_like(parameter));
    second.push_back(at::zeros_like(parameter));
  }
  for (int step = 1; step <= steps; ++step) {
    const auto gradients = torch::autograd::grad({objective.forward(features, {}).total}, parameters, {}, std::nullopt, false, true);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!gradients[i].defined()) continue;
      first[i].lerp_(gradients[i], 0.1);
      second[i].lerp_(gradients[i].square(), 0.01);
      const at::Tensor mean = first[i] / (1 - std::pow(0.9, step)), size = (second[i] / (1 - std::pow(0.99, step))).sqrt();
      at::Tensor(parameters[i]).sub_(0.01 * mean / (size + 1e-8));
    }
  }
}

class CaptionTasks : public ::testing::Test {
 protected:
  CaptionTasks() {
    at::manual_seed(1);
    context.source = std::make_shared<BoxedImages>();
    context.images = true;
    objective = objectives().make(
        {"weighted_sum", config::parse_yaml("{objectives: [{name: captioning, parallel: 0, referring_weight: 1, coordinate_bins: 8, "
                                            "decoder: {context_length: 8, layers: 1, heads: 2, vocabulary: own, width: 16}}]}", "test")},
        "objective", {.embed_dim = 3, .image_width = 7, .vocab_size = 11});
    context.loss = std::make_shared<KeptObjective>(objective);
  }

  /// Returns the images as evaluation preprocesses them, with their first captions and their boxes.
  Features features() const {
    EvaluationReader reader(context.source, embedder.preprocessing(), 4, 1);
    std::vector<at::Tensor> pixels;
    std::vector<std::string> captions;
    for (const EvaluationSample& sample : reader.next()) {
      pixels.push_back(sample.pixels);
      captions.push_back(sample.sample.captions[0]);
    }
    Features out;
    out.images["image"] = embedder.encode_images(at::stack(pixels), {.encoder_tokens = true});
    out.texts["caption"].input = embedder.tokenizer()->encode_batch(captions);
    const TowerInput phrases = embedder.tokenizer()->encode_batch({"the box", "the box", "the box", "the box"});
    out.texts[kPhrases].input = text_input(phrases.ids.unsqueeze(1), phrases.mask.unsqueeze(1));
    const at::Tensor corners = at::tensor({0., 0., .5, .5, .5, 0., 1., .5, 0., .5, .5, 1., .5, .5, 1., 1.}).to(at::kFloat).view({4, 1, 4});
    out.images["image"].boxes = {corners, at::ones({4, 1}, at::kBool)};
    return out;
  }
  TaskResult run(const std::string& yaml) const {
    return run_task(task_of(yaml), embedder, context);
  }

  QuarterEmbedder embedder;
  EvaluationContext context;
  std::shared_ptr<Objective> objective;
};

TEST_F(CaptionTasks, AreRightOnceTheDecoderHasMemorizedTheImages) {
  const TaskResult before = run("{name: captions}"), lost = run("{name: referring}");
  learn_by_heart(*objective, features(), 150);
  const TaskResult captions = run("{name: captions, samples: 2}");
  EXPECT_EQ(captions.samples, 4);
  EXPECT_LT(metric(before, "token_accuracy"), 0.7);
  EXPECT_EQ(metric(captions, "token_accuracy"), 1);
  // The first image has two references, so even its right caption scores below 10. The other three images have one reference each and score
  // 10.
  EXPECT_GT(metric(captions, "cider_d"), 8);
  EXPECT_LT(metric(captions, "cider_d"), 10);
  ASSERT_EQ(captions.readings.size(), 2u);
  EXPECT_EQ(captions.readings[1].of, "picture2");
  EXPECT_EQ(captions.readings[1].text, "a red box down here (10.00)");
  const nlohmann::json sheets = sheets_of(captions, "Captions");
  ASSERT_EQ(sheets.size(), 2u);
  EXPECT_EQ(sheets[0].at("quote"), "a red box up here");
  EXPECT_EQ(sheets[0].at("list").size(), 2u) << "the image's own captions";
  EXPECT_EQ(sheets[1].at("score"), "10.00");
  expect_outcomes_give_metrics(captions);

  // Each coordinate of a box is written as one of 8 bins and read back as the bin's center. A coordinate of 0 becomes bin 0, which is read
  // back as 1/16. A coordinate of 1/2 becomes bin 4, which is read back as 9/16. A coordinate of 1 becomes the last bin, 7.
  const TaskResult referring = run("{name: referring}");
  EXPECT_EQ(metric(referring, "boxes"), 4) << "the box out of sight and phrases without a box do not count";
  EXPECT_EQ(metric(referring, "accuracy"), 1);
  const auto iou = [](double width, double height, double area) { return width * height / (0.25 + area - width * height); };
  // If the true box starts at 0 along an axis, the predicted box overlaps the true box by `low`. If the true box starts at 1/2, the overlap
  // is `high`.
  const double low = 0.5 - 1. / 16, high = 0.5 - 1. / 8;
  const double expected = (iou(low, low, 0.25) + iou(high, low, 0.5 * 0.375) + iou(low, high, 0.5 * 0.375) + iou(high, high, 0.375 * 0.375)) / 4;
  EXPECT_NEAR(metric(referring, "mean_iou"), expected, 1e-6);
  EXPECT_LT(metric(lost, "mean_iou"), expected);
}

TEST_F(CaptionTasks, RejectADecoderThatWasNotTrainedForThem) {
  const auto message = [&](const std::string& yaml) { return error_of([&] { run(yaml); }); };
  const auto set = [&](const std::string& name, const std::string& yaml) {
    context.loss = std::make_shared<KeptObjective>(
        objectives().make({name, config::parse_yaml(yaml, "test")}, "objective", {.image_width = 7, .vocab_size = 11}));
  };
  set("captioning", "{decoder: {vocabulary: own, heads: 1}}");
  EXPECT_EQ(message("{name: referring}").find("referring: the decoder has not learned to find boxes"), 0u);
  set("clip", "{}");
  EXPECT_EQ(message("{name: captions}").find("captions needs a decoder of captions, which this model does not have: give a checkpoint"), 0u);
  context.loss = nullptr;
  EXPECT_EQ(message("{name: referring}").find("referring needs a decoder of captions"), 0u);
}

}  // namespace
}  // namespace tessera
