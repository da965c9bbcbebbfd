// Tests K-precision with a model that retrieves captions by the colors that they name.

#include <gtest/gtest.h>

#include "src/evaluation/metrics/captions.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"

namespace tessera {
namespace {

/// Images of one color each, with captions.
class ColoredImages final : public IndexedSource {
 public:
  struct Image {
    std::uint8_t red, green, blue;
    std::vector<std::string> captions;
  };
  explicit ColoredImages(std::vector<Image> images) : images_(std::move(images)) {}
  std::int64_t size() const override { return std::ssize(images_); }
  Sample get(std::int64_t index) const override {
    const Image& shown = images_.at(static_cast<std::size_t>(index));
    Sample sample;
    sample.key = concat("picture", index);
    sample.captions = shown.captions;
    sample.image = {8, 8, {}};
    for (int i = 0; i < 64; ++i)
      for (const std::uint8_t value : {shown.red, shown.green, shown.blue}) sample.image.pixels.push_back(value);
    return sample;
  }
  std::string describe() const override { return "colored pictures"; }

 private:
  std::vector<Image> images_;
};

class KPrecision : public ::testing::Test {
 protected:
  // Each image retrieves the caption that names its color. The first image retrieves its own caption. The second and third images are
  // green, so they retrieve the third image's caption.
  KPrecision() {
    context.source = std::make_shared<ColoredImages>(
        std::vector<ColoredImages::Image>{{200, 0, 0, {"a red dog runs", "the dog"}},
                                              {0, 200, 0, {"a dog by the wall", "two dogs"}},
                                              {0, 190, 60, {"a green dog and a green cat"}},
                                              {0, 0, 9, {}}});
  }
  TaskResult run(const std::string& more) {
    return run_task(task_of("{name: k_precision" + more + "}"), embedder, context);
  }

  test::ColorEmbedder embedder;
  EvaluationContext context;
};

TEST_F(KPrecision, CountsWordsThatOccurInAnyOwnCaption) {
  const TaskResult result = run("");
  // The second image retrieves "a green dog and a green cat". Three of the seven words are in its own captions: "a" twice, and "dog".
  EXPECT_EQ(result.metrics, (Metrics{{"k_precision", (1 + 3.0 / 7 + 1) / 3}}));
  EXPECT_EQ(result.samples, 3);
  EXPECT_EQ(result.skipped.at("no_caption"), 1);
  ASSERT_EQ(result.readings.size(), 3U);
  EXPECT_EQ(result.readings[1], (Reading{"picture1", "a green dog and a green cat (42.86%)"}));
}

TEST_F(KPrecision, CountsNounsAndAdjectivesSeparately) {
  const TaskResult result = run(", lexicon: [dog, cat, green]");
  EXPECT_EQ(result.metrics.at(1), (Metric("k_precision_na", (1 + 1.0 / 4 + 1) / 3)));
  EXPECT_NEAR(report::value_of(result.outcomes.at(1)), result.metrics.at(1).second, 1e-12);
  // The first image retrieves a caption without any word of this lexicon, so the mean leaves this image out.
  EXPECT_EQ(run(", lexicon: [cat]").metrics.at(1).second, 0.5);
}

TEST_F(KPrecision, ClipsCountsIfRequested) {
  EXPECT_EQ(run(", clip_counts: true").metrics.at(0).second, (1 + 2.0 / 7 + 1) / 3) << "the second \"a\" does not count";
}

TEST_F(KPrecision, IgnoresTheWordsOfThePrompt) {
  EXPECT_EQ(run(", prompt_prefix: 'a photo of '").metrics, run("").metrics);
}

TEST(KPrecisionMetric, TilesMatchTheWholeMatrix) {
  at::manual_seed(4);
  const at::Tensor scores = at::randint(0, 5, {70, 90'000}, at::kDouble);  // too many scores for one tile, and many of them are equal
  const auto tile = [&](metrics::RowRange images, metrics::RowRange texts) {
    return scores.slice(0, images.begin, images.end).slice(1, texts.begin, texts.end);
  };
  const std::vector<std::int64_t> best = metrics::best_texts(tile, 70, 90'000);
  for (std::int64_t n = 0; n < 70; ++n) {
    const auto first = scores[n].eq(scores[n].max()).nonzero()[0].item<std::int64_t>();
    EXPECT_EQ(best[static_cast<std::size_t>(n)], first) << n;
  }
}

}  // namespace
}  // namespace tessera
