// Tests the FG-OVD task with an embedder whose patch embeddings are known. The task chooses among several texts for each box.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"
#include <tessera/evaluation/embedder_view.h>

namespace tessera {
namespace {

/// Embeds each block of 2 x 2 pixels of an 8 x 8 image as its mean color, and embeds texts like ColorEmbedder.
class ColorPatches final : public EmbedderView {
 public:
  bool gives_patches = true;
  Preprocessing prepared = test::ColorEmbedder().prepared;

  ColorPatches() : EmbedderView(colors_) {}
  const Preprocessing& preprocessing() const override { return prepared; }
  config::Size grid() const override { return 4; }
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    TowerFeatures out = EmbedderView::encode_images(images, needs);
    if (needs.dense && gives_patches)
      out.dense = at::avg_pool2d(images.pixels.to(at::kFloat), {2, 2}).flatten(2).transpose(1, 2).contiguous();
    return out;
  }

 private:
  test::ColorEmbedder colors_;
};

class FgOvdTasks : public FolderTest {
 protected:
  FgOvdTasks() {
    // The image has 16 x 32 pixels: red in columns 8 to 16, green in 16 to 24, and blue elsewhere.
    Image image{16, 32, {}};
    for (int i = 0; i < 16 * 32; ++i) {
      const int column = i % 32;
      const std::array<std::uint8_t, 3> red = {200, 0, 0}, green = {0, 200, 0}, blue = {0, 0, 200};
      const auto& color = column < 8 || column >= 24 ? blue : column < 16 ? red : green;
      image.pixels.insert(image.pixels.end(), color.begin(), color.end());
    }
    write("a.png", encode_png(image));
    context.batch_size = 2;
  }

  /// Writes a data set in which each line holds the regions of one image. Returns the source's settings.
  std::string set(const std::string& name, const std::vector<std::string>& lines) const {
    std::string all;
    for (const std::string& regions : lines) all += R"({"image": "a.png", "regions": [)" + regions + "]}\n";
    return concat("{name: json_lines, path: ", write(name + ".jsonl", all), ", images: ", folder_.string(), ", caption_keys: []}");
  }
  TaskResult run(const std::string& settings) {
    return check_and_run(resolve_tasks({task_of("{name: fgovd, " + settings + "}")}, "tasks")[0], embedder, context);
  }
  std::string error_of(const std::string& settings) {
    return tessera::error_of([&] { run(settings); });
  }

  ColorPatches embedder;
  EvaluationContext context;
};

const std::string kRed = R"({"box": [8, 0, 16, 16], "phrase": "red", "negatives": ["green", "blue"]})";
const std::string kGreen = R"({"box": [16, 0, 24, 16], "phrase": "green", "negatives": ["red"]})";
const std::string kWrong = R"({"box": [16, 4, 22, 12], "phrase": "red", "negatives": ["green", "green red", "red red"]})";

TEST_F(FgOvdTasks, PhraseMustBeNearerToItsBoxThanAllNegatives) {
  const TaskResult result = run("source: " + set("all", {kRed + ", " + kGreen, kWrong}));
  // The phrase of the box kWrong is less similar to the box than `green` and `green red`. It ties with `red red`, and a tie counts against
  // the phrase. So the phrase has rank 4.
  EXPECT_EQ(result.metrics, (Metrics{{"accuracy", 2.0 / 3}, {"mean_rank", (1 + 1 + 4) / 3.0}, {"boxes", 3}}));
  EXPECT_EQ(result.samples, 1) << "both lines name the same image";
  expect_outcomes_give_metrics(result);
}

TEST_F(FgOvdTasks, EachDifficultyHasItsOwnMetrics) {
  const TaskResult result = run("sets: {hard: " + set("hard", {kWrong}) + ", easy: " + set("easy", {kRed}) + "}");
  EXPECT_EQ(result.metrics, (Metrics{{"easy_accuracy", 1},
                                     {"easy_mean_rank", 1},
                                     {"easy_boxes", 1},
                                     {"hard_accuracy", 0},
                                     {"hard_mean_rank", 4},
                                     {"hard_boxes", 1}}));
  EXPECT_EQ(result.samples, 2);
}

TEST_F(FgOvdTasks, BoxesFollowThePreprocessingOfTheImage) {
  // The mode `shortest` keeps only columns 8 to 24. The mode `squash` keeps all columns, at half the horizontal resolution.
  const std::string blue = R"({"box": [0, 0, 8, 16], "phrase": "blue", "negatives": ["red", "green"]})";
  const std::string data = "source: " + set("all", {kRed + ", " + blue});
  const TaskResult cropped = run(data);
  EXPECT_EQ(cropped.metrics, (Metrics{{"accuracy", 1}, {"mean_rank", 1}, {"boxes", 1}}));
  EXPECT_EQ(cropped.skipped, (std::map<std::string, std::int64_t>{{"box_out_of_sight", 1}}));
  embedder.prepared.resize_mode = "squash";
  EXPECT_EQ(run(data).metrics, (Metrics{{"accuracy", 1}, {"mean_rank", 1}, {"boxes", 2}}));
}

TEST_F(FgOvdTasks, PromptPrefixAppliesToAllTexts) {
  const std::string data =
      "source: " + set("all", {R"({"box": [8, 0, 16, 16], "phrase": "green", "negatives": ["blue blue"]})"});
  EXPECT_EQ(run(data).metrics[0].second, 0);
  EXPECT_EQ(run(data + ", prompt_prefix: 'red '").metrics[0].second, 1);
}

TEST_F(FgOvdTasks, RejectsDataAndModelsThatDoNotFit) {
  const std::string without = set("without", {R"({"box": [8, 0, 16, 16], "phrase": "red"})"});
  EXPECT_TRUE(contains(error_of("sets: {hard: " + without + "}"), "a box with a phrase and hard negatives"));
  EXPECT_TRUE(contains(error_of("source: " + set("all", {kRed}) + ", sets: {hard: " + without + "}"),
                       "sets: is set, and `source` is, too: set only one of the two"));
  embedder.gives_patches = false;
  EXPECT_EQ(error_of("source: " + set("all", {kRed})), "fgovd: this model's image tower outputs no patch embeddings");
}

}  // namespace
}  // namespace tessera
