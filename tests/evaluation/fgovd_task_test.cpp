// Tests boxes with a choice of texts (FG-OVD) on a model with known patch embeddings.

#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/evaluation/color_embedder.h"
#include <tessera/data/image/encode.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Metrics = std::vector<std::pair<std::string, double>>;

/// Embeds each 2 x 2 pixels of an 8 x 8 image as their mean color, and texts like ColorEmbedder.
class ColorPatches final : public Embedder {
 public:
  bool gives_patches = true;
  Preprocessing prepared = test::ColorEmbedder().preprocessing();

  const Preprocessing& preprocessing() const override { return prepared; }
  config::Size grid() const override { return {4, 4}; }
  using Embedder::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override {
    TowerFeatures out = colors_.images(pictures, needs);
    if (needs.dense && gives_patches)
      out.dense = at::avg_pool2d(pictures.pixels.to(at::kFloat), {2, 2}).flatten(2).transpose(1, 2).contiguous();
    return out;
  }
  bool takes_texts() const override { return true; }
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override {
    return colors_.texts(texts, needs);
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t each) const override {
    return colors_.classes(prompts, each);
  }
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override {
    TowerFeatures wide = images;
    wide.global = images.global.to(at::kDouble);
    return colors_.similarity(wide, texts);
  }

 private:
  test::ColorEmbedder colors_;
};

class FgOvdTasks : public ::testing::Test {
 protected:
  FgOvdTasks()
      : folder_(fs::temp_directory_path() / concat("tessera_fgovd_", ::getpid(), "_",
                                                   ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
    // The image has 16 x 32 pixels: red in columns 8 to 16, green in 16 to 24, and blue elsewhere.
    Image image{16, 32, {}};
    for (int i = 0; i < 16 * 32; ++i) {
      const int column = i % 32;
      const std::array<std::uint8_t, 3> red = {200, 0, 0}, green = {0, 200, 0}, blue = {0, 0, 200};
      const auto& color = column < 8 || column >= 24 ? blue : column < 16 ? red : green;
      image.pixels.insert(image.pixels.end(), color.begin(), color.end());
    }
    io::write_file((folder_ / "a.png").string(), encode_png(image));
    context.batch_size = 2;
  }
  ~FgOvdTasks() override { fs::remove_all(folder_); }

  /// Writes a data set with the regions of one image per line. Returns its source settings.
  std::string set(const std::string& name, const std::vector<std::string>& lines) const {
    std::ofstream file(folder_ / (name + ".jsonl"));
    for (const std::string& regions : lines) file << R"({"image": "a.png", "regions": [)" << regions << "]}\n";
    return concat("{name: json_lines, path: ", (folder_ / (name + ".jsonl")).string(), ", images: ", folder_.string(),
                  ", caption_key: []}");
  }
  TaskResult run(const std::string& settings) {
    const auto task = config::Value<config::ModuleSettings>::read(
        config::parse_yaml("{name: fgovd, " + settings + "}", "task.yaml"), "", {});
    const auto resolved = resolve_tasks({task}, "tasks");
    check_task(resolved[0], embedder, context);
    return run_task(resolved[0], embedder, context);
  }
  std::string error_of(const std::string& settings) {
    try {
      run(settings);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
  ColorPatches embedder;
  EvaluationContext context;
};

const std::string kRed = R"({"box": [8, 0, 16, 16], "phrase": "red", "negatives": ["green", "blue"]})";
const std::string kGreen = R"({"box": [16, 0, 24, 16], "phrase": "green", "negatives": ["red"]})";
const std::string kWrong = R"({"box": [16, 4, 22, 12], "phrase": "red", "negatives": ["green", "green red", "red red"]})";

TEST_F(FgOvdTasks, PhraseMustBeNearerToItsBoxThanAllNegatives) {
  const TaskResult result = run("source: " + set("all", {kRed + ", " + kGreen, kWrong}));
  // The wrong phrase ranks behind `green` and `green red`, and ties with `red red`, which counts against it.
  EXPECT_EQ(result.metrics, (Metrics{{"accuracy", 2.0 / 3}, {"mean_rank", (1 + 1 + 4) / 3.0}, {"boxes", 3}}));
  EXPECT_EQ(result.samples, 2);
  for (const report::Outcomes& outcomes : result.outcomes)
    for (const auto& [name, value] : result.metrics)
      if (name == outcomes.metric) {
        EXPECT_NEAR(report::value_of(outcomes), value, 1e-12) << name;
      }
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
  // Resizing the short side keeps columns 8 to 24; squash keeps all columns, at half the horizontal resolution.
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
  EXPECT_NE(error_of("sets: {hard: " + without + "}").find("a box with a phrase and hard negatives"),
            std::string::npos);
  EXPECT_NE(error_of("source: " + set("all", {kRed}) + ", sets: {hard: " + without + "}")
                .find("sets: is set, and `source` is, too: set only one of the two"),
            std::string::npos);
  embedder.gives_patches = false;
  EXPECT_EQ(error_of("source: " + set("all", {kRed})), "fgovd: this model's image tower outputs no patch embeddings");
}

}  // namespace
}  // namespace tessera
