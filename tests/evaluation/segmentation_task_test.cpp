#include "tests/evaluation/plain_data.h"

namespace tessera {
namespace {

class TasksOnMasks : public Tasks {};

TEST_F(TasksOnMasks, SegmentationWithOneCandidateIsRightOnItsPixels) {
  // Each image has one candidate class, so every pixel is assigned to it. Half of the pixels are background.
  const TaskResult result = run("{name: segmentation}");
  EXPECT_NEAR(result.metrics.at(0).second, 0.5, 1e-9);
  EXPECT_EQ(result.metrics.at(0).first, "image_miou");
}

TEST_F(TasksOnMasks, NameTheSampleOfAMaskValueWithoutAClass) {
  source->names.clear();
  const std::string yaml = "{name: segmentation, classes: [one]}";
  EXPECT_EQ(error_of(yaml),
            "the mask of sample sample0 of plain pictures holds class 2, but there are only 1 class names (0 to 0): list "
            "one for each value in segmentation.classes");
  EXPECT_EQ(check(yaml), error_of(yaml));
}

TEST_F(TasksOnMasks, BackgroundIsFoundByItsNameAtAnyPlace) {
  const TaskResult set = run("{name: segmentation}"),
                   set_foreground = run("{name: segmentation, candidates: foreground}");
  EXPECT_EQ(set.notes,
            (std::vector<std::string>{"class 2, background, counts as the background (background_class of the data)"}));
  source->background = -1;
  source->names[2] = "BackGround";
  EXPECT_EQ(run("{name: segmentation}").metrics, set.metrics);
  source->names = {"__Background__", "dark", "bright"};
  source->change = [](std::int64_t, Sample& sample) {
    for (std::uint8_t& value : sample.mask) value = static_cast<std::uint8_t>((value + 1) % 3);
  };
  const TaskResult first = run("{name: segmentation}");
  EXPECT_EQ(first.metrics, set.metrics);
  EXPECT_EQ(first.notes,
            (std::vector<std::string>{"class 0, __Background__, counts as the background because of its name"}));
  EXPECT_EQ(run("{name: segmentation, candidates: foreground}").metrics, set_foreground.metrics);
  EXPECT_EQ(check("{name: segmentation, background_threshold: 0.1}"), "no error");
  source->background = 1;
  EXPECT_EQ(run("{name: segmentation}").notes,
            (std::vector<std::string>{"class 1, dark, counts as the background (background_class of the data), "
                                      "although class 0, __Background__, is called so"}));
  source->background = -1;
  source->names[0] = "wall";
  EXPECT_EQ(
      run("{name: segmentation}").notes,
      (std::vector<std::string>{
          "no class counts as the background: the data set no background_class, and no class is called background"}));
}

TEST_F(TasksOnMasks, PixelsOfClassesWithoutAMeaningAreIgnored) {
  source->background = -1;
  for (const std::string name : {"void", "Unlabeled", "__ignore__", "no-data"}) {
    source->names = {"dark", "bright", name};
    source->change = nullptr;
    const TaskResult named = run("{name: segmentation, candidates: all}");
    EXPECT_EQ(named.notes.back(), "pixels of " + name + " are ignored, and these classes are not predicted");
    EXPECT_EQ(named.classes, source->names);
    source->names.resize(2);
    source->change = [](std::int64_t, Sample& sample) { std::ranges::replace(sample.mask, 2, 255); };
    EXPECT_EQ(run("{name: segmentation, candidates: all}").metrics, named.metrics) << name;
  }
  source->names = {"dark", "bright", "void"};
  source->background = 2;
  EXPECT_TRUE(contains(run("{name: segmentation}").notes.at(0), "class 2, void, counts as the background"))
      << "the setting takes precedence";
}

TEST_F(TasksOnMasks, RenamedClassesKeepTheirMeaning) {
  source->background = -1;
  context.images = true;
  const TaskResult own = run("{name: segmentation}");
  const TaskResult renamed = run("{name: segmentation, classes: [night, day, nothing else]}");
  for (const TaskResult* result : {&own, &renamed}) EXPECT_EQ(card_of(*result, "Overlays").at("background"), 2);
  EXPECT_EQ(renamed.notes.at(1),
            "class 2, nothing else (in the data: background), counts as the background because of its name");
  source->names[2] = "void";
  EXPECT_EQ(run("{name: segmentation, candidates: all, classes: [night, day, nothing else]}").notes.back(),
            "pixels of nothing else (in the data: void) are ignored, and these classes are not predicted");
}

TEST_F(TasksOnMasks, ClassesInNoMaskAreNamed) {
  source->names.insert(source->names.end(), {"cat", "dog"});
  EXPECT_EQ(run("{name: segmentation}").notes.back(), "2 of 5 classes occur in no mask: cat and dog");
}

TEST_F(TasksOnMasks, SegmentationMatchesClassesInAnotherOrderByName) {
  const TaskResult own = run("{name: segmentation, candidates: all}");
  const TaskResult other = run("{name: segmentation, candidates: all, classes: [background, 'bright', dark]}");
  EXPECT_EQ(other.metrics, own.metrics);
  EXPECT_EQ(other.notes.at(0),
            "classes are matched by their names: dark -> dark, bright -> bright, background -> background");
  EXPECT_TRUE(contains(
      check("{name: segmentation, classes: [bright, grass, background]}"),
      "segmentation.classes has some names of plain pictures at other positions (classes are matched by their names: "
      "dark -> none, bright -> bright, background -> background): list all names"));
}

TEST_F(TasksOnMasks, SegmentationWithoutMasksOnlyColorsImages) {
  source->change = [](std::int64_t, Sample& sample) { sample.mask.clear(); };
  const std::string yaml = "{name: segmentation, classes: [grass, sky, sand, sea]}";
  EXPECT_TRUE(contains(check("{name: segmentation}"), "no sample of plain pictures has a mask"))
      << "without images to show, there is nothing to do";
  context.images = true;
  EXPECT_EQ(check(yaml), "no error") << "classes need not be those of the data";
  for (const std::string windows : {"", ", windows: {short_side: 16}"}) {
    const TaskResult colored = run(yaml.substr(0, yaml.size() - 1) + windows + "}");
    EXPECT_TRUE(colored.metrics.empty());
    EXPECT_EQ(colored.notes.back(),
              "no sample has a mask: each pixel is colored by the class whose text is nearest, and nothing is measured");
    const nlohmann::json sheets = sheets_of(colored, "Overlays");
    ASSERT_EQ(sheets.size(), 6U);
    const nlohmann::json& shown = sheets[1];
    ASSERT_EQ(shown.at("images").size(), 2U) << "the image and the prediction, but no true mask";
    EXPECT_EQ(shown.at("images")[0].at("name"), "sample1");
    EXPECT_EQ(shown.at("images")[1].at("caption"), "prediction") << "without a mask there is no IoU";
    for (const auto& index : shown.at("legend")) EXPECT_LT(index, 4);
  }
}

TEST_F(TasksOnMasks, OneWindowEqualsTheWholeImage) {
  const auto whole = run("{name: segmentation}").metrics;
  EXPECT_EQ(run("{name: segmentation, windows: {short_side: 16}}").metrics, whole);
  EXPECT_EQ(run("{name: segmentation, windows: {short_side: 0, size: 16, stride: 5}}").metrics, whole);
  context.images = true;
  const TaskResult enlarged = run("{name: segmentation, windows: {short_side: 40}}");
  EXPECT_EQ(sheets_of(enlarged, "Overlays").size(), 6U);
  EXPECT_EQ(sheets_of(enlarged, "Overlays").at(0).at("images")[0].at("src"), sheets_of(run("{name: segmentation}"), "Overlays").at(0).at("images")[0].at("src"))
      << "images keep their size";
}

TEST_F(TasksOnMasks, EqualNamesOfAClassCountOnce) {
  const TaskResult one = run("{name: segmentation, candidates: all}");
  const TaskResult more = run("{name: segmentation, candidates: all, classes: ['dark, dark', 'Light: bright', background]}");
  EXPECT_EQ(more.metrics, one.metrics);
  EXPECT_EQ(more.classes, (std::vector<std::string>{"dark", "Light", "background"}));
  EXPECT_EQ(error_of("{name: segmentation, classes: ['a, , b', c, d]}"),
            "segmentation.classes: class 0, \"a, , b\", has an empty name: expected NAME, NAME, ... or CLASS: NAME, NAME, ...");
}

TEST_F(TasksOnMasks, PixelsBelowTheThresholdAreBackground) {
  for (const char* yaml : {"{name: segmentation, candidates: foreground, background_threshold: 1, threshold_of: cosine}",
                           "{name: segmentation, candidates: foreground, background_threshold: 1, logit_scale: 2}"}) {
    const TaskResult all = run(yaml);
    EXPECT_EQ(all.metrics.at(2), (Metric("pixel_accuracy", 0.5))) << "half of each image is background";
    EXPECT_EQ(all.metrics.at(1).second, 0);
    EXPECT_EQ(all.metrics.at(3), (Metric("dataset_miou_with_background", 0.5 / 3)));
  }
  EXPECT_EQ(run("{name: segmentation, candidates: foreground, background_threshold: 0}").metrics,
            run("{name: segmentation, candidates: foreground}").metrics);
}

TEST_F(TasksOnMasks, PlainLastBlockChangesNothing) {
  const auto plain = run("{name: segmentation}").metrics;
  EXPECT_EQ(run("{name: segmentation, last_block: plain}").metrics, plain);
  for (const std::string kind : {"maskclip", "sclip", "clearclip", "naclip"})
    EXPECT_EQ(run("{name: segmentation, last_block: " + kind + "}").samples, 6) << kind;
  EXPECT_EQ(error_of("{name: segmentation, last_block: sclip, by: groups}")
                .find("last_block: changes the patches, but `by` is groups") != std::string::npos,
            true);
}

}  // namespace
}  // namespace tessera
