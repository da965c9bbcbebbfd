// Tests the tasks that choose among options, on an embedder with known similarities.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"

namespace tessera {
namespace {

class OptionTasks : public FolderTest {
 protected:
  OptionTasks() {
    paint("red.png", 200, 0, 0);
    paint("green.png", 0, 200, 0);
    paint("yellow.png", 200, 200, 0);
    context.batch_size = 2;
  }

  void paint(const std::string& name, int red, int green, int blue) const {
    Image image{8, 8, {}};
    for (int i = 0; i < 64; ++i)
      for (const int value : {red, green, blue}) image.pixels.push_back(static_cast<std::uint8_t>(value));
    write(name, encode_png(image));
  }
  TaskResult run(const std::string& layout, const std::string& content, const std::string& more = "") {
    const std::string items = write("items.json", content);
    return check_and_run(
        task_of(concat("{name: options, layout: ", layout, ", annotations: ", items, ", images: ", folder_.string(), more, "}")),
        embedder, context);
  }

  test::ColorEmbedder embedder;
  EvaluationContext context;
};

constexpr const char* kChoices =
    R"([{"image": "red.png", "options": ["red", "green", "blue"], "kind": "b"},
        {"image": "green.png", "options": ["red", "green"], "kind": "a"},
        {"image": "yellow.png", "options": ["red", "green"], "kind": "a"},
        {"image": "red.png", "options": ["red green", "green", "blue"], "kind": "a"}])";

TEST_F(OptionTasks, FirstOptionMustBeNearerThanAllOthers) {
  const TaskResult result = run("options", kChoices);
  EXPECT_EQ(result.metrics, (Metrics{{"accuracy", 0.5},
                                     {"mean_category_accuracy", (1.0 / 3 + 1) / 2},
                                     {"a_accuracy", 1.0 / 3},
                                     {"b_accuracy", 1.0},
                                     {"items", 4}}))
      << "a tie is wrong";
  EXPECT_EQ(result.samples, 3) << "each image is embedded once";
  ASSERT_EQ(result.outcomes.size(), 4U) << "all metrics except the number of items";
  expect_outcomes_give_metrics(result);
}

TEST_F(OptionTasks, SparseEmbeddingsMatchDenseOnes) {
  const Metrics dense = run("options", kChoices).metrics;
  embedder.sparse = true;
  EXPECT_EQ(run("options", kChoices).metrics, dense);
}

TEST_F(OptionTasks, ImagesMayBeTheOptions) {
  const TaskResult result = run("options", R"([{"image": ["red.png", "green.png"], "options": "red"},
                                               {"image": ["red.png", "green.png", "yellow.png"], "options": "green"}])");
  EXPECT_EQ(result.metrics, (Metrics{{"accuracy", 0.5}, {"items", 2}}));
}

TEST_F(OptionTasks, WinogroundScoresTextsAndImagesSeparately) {
  // In the second item, the caption "green" is nearer to the yellow image than to the red one. But the yellow image is equally near to both
  // captions. So this item counts for the image score, but not for the text score.
  const TaskResult result = run(
      "winoground",
      R"([{"image_0": "red", "image_1": "green", "caption_0": "red", "caption_1": "green", "collapsed_tag": "Object"},
                                    {"image_0": "red", "image_1": "yellow", "caption_0": "red", "caption_1": "green", "collapsed_tag": "Object"}])");
  EXPECT_EQ(result.metrics, (Metrics{{"text_score", 0.5}, {"image_score", 1.0}, {"group_score", 0.5}, {"items", 2}}));
}

TEST_F(OptionTasks, SugarCrepePlusPlusAlsoComparesTexts) {
  const TaskResult result =
      run("sugarcrepe_pp",
          R"([{"filename": "red.png", "caption": "red", "caption2": "red red green", "negative_caption": "green"},
                                    {"filename": "red.png", "caption": "red", "caption2": "red green green", "negative_caption": "green"}])");
  EXPECT_EQ(result.metrics, (Metrics{{"image_to_text_accuracy", 1.0}, {"text_only_accuracy", 0.5}, {"items", 2}}));
}

TEST_F(OptionTasks, CountsAndSkipsItemsWithoutAnImage) {
  const TaskResult result = run("sugarcrepe",
                                R"([{"filename": "red.png", "caption": "red", "negative_caption": "green"},
                                    {"filename": "none.png", "caption": "green", "negative_caption": "red"}])");
  EXPECT_EQ(result.metrics, (Metrics{{"accuracy", 1.0}, {"items", 1}}));
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"item_without_picture", 1}, {"no_image", 1}}));
}

TEST_F(OptionTasks, SupportsMaxItemsAndAPromptPrefix) {
  EXPECT_EQ(run("options", kChoices, ", max_items: 1").metrics, (Metrics{{"accuracy", 1.0}, {"items", 1}}));
  const std::string item = R"([{"image": "yellow.png", "options": ["green", "red"]}])";
  EXPECT_EQ(run("options", item).metrics.at(0).second, 0.0);
  EXPECT_EQ(run("options", item, ", prompt_prefix: 'red '").metrics.at(0).second, 1.0) << "compares red green with red red";
}

TEST_F(OptionTasks, WhatsUpCountsPairsAndSetsThatAreAllRight) {
  std::string items;
  const auto add = [&](const std::string& image, int red, int green, const std::string& options) {
    if (red + green > 0) paint(image, red, green, 0);
    items += std::string(items.empty() ? "[" : ",") + R"({"image_path": "data/x/)" + image +
             R"(", "caption_options": )" + options + "}";
  };
  const std::string right = R"(["red", "green"])", wrong = R"(["green", "red"])";
  for (const char* relation : {"left_of", "right_of", "on", "under"})
    add(concat("a_", relation, "_b.png"), 200, 0, right);
  add("c_left_of_b.png", 200, 0, right);
  add("c_right_of_b.png", 200, 0, right);
  add("c_on_b.png", 200, 0, wrong);
  add("c_under_b.png", 200, 0, right);
  const TaskResult result = run("whatsup", items + "]");
  EXPECT_EQ(result.metrics,
            (Metrics{{"accuracy", 7.0 / 8}, {"pair_accuracy", 3.0 / 4}, {"set_accuracy", 0.5}, {"items", 8}}));
  EXPECT_EQ(report::value_of(result.outcomes.at(1)), 0.75);
  EXPECT_EQ(run("whatsup", items + "]", ", max_items: 5").metrics,
            (Metrics{{"accuracy", 1.0}, {"pair_accuracy", 1.0}, {"set_accuracy", 1.0}, {"items", 5}}))
      << "an incomplete set does not count";
  add("d_left_of_b.png", 0, 0, right);
  EXPECT_EQ(run("whatsup", items + "]").metrics, result.metrics) << "a set with a missing image does not count either";
}

TEST_F(OptionTasks, RejectsAFileOfAnotherLayoutBeforeMeasuring) {
  EXPECT_THROW(run("winoground", R"([{"filename": "red.png", "caption": "x", "negative_caption": "y"}])"), UserError);
}

}  // namespace
}  // namespace tessera
