// Tests suites of data sets in CLIP_benchmark's folders, with small data sets that the tests write, and DataComp's tasks.
#include <cmath>
#include <map>

#include "src/data/image/encode.h"
#include "src/evaluation/data_sets.h"
#include "src/io/tar.h"
#include "tests/evaluation/evaluate_fixture.h"
#include "tests/evaluation/plain_data.h"
#include "tests/support/page_data.h"
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

SuiteSettings shipped_suite(const std::string& name) {
  const std::string path = config::shipped_folder() + "/suites/" + name + ".yaml";
  return config::read<SuiteSettings>(config::parse_yaml(io::read_file(path), path));
}

std::map<std::string, double> values_of(const std::vector<SuiteMean>& means) {
  std::map<std::string, double> out;
  for (const SuiteMean& mean : means) out[mean.title()] = mean.value.value_or(-1);
  return out;
}

// The scores and means of OpenAI's ViT-B/32 in DataComp's published table (Gadre et al. 2023).
const std::map<std::string, double> kPublished = {
    {"ImageNet 1k", .6332}, {"ImageNet Sketch", .4229}, {"ImageNet v2", .5592}, {"ImageNet-A", .3155}, {"ImageNet-O", .4775},
    {"ImageNet-R", .6933}, {"ObjectNet", .4431}, {"Caltech-101", .8758}, {"CIFAR-100", .6423}, {"CLEVR Counts", .2320},
    {"CLEVR Distance", .2335}, {"Describable Textures", .4436}, {"EuroSAT", .5044}, {"KITTI Vehicle Distance", .2743},
    {"Oxford Flowers-102", .6670}, {"Oxford-IIIT Pet", .8700}, {"PatchCamelyon", .6224}, {"RESISC45", .5362}, {"SVHN", .3159},
    {"SUN397", .6248}, {"CIFAR-10", .8983}, {"Country211", .1720}, {"FGVC Aircraft", .1953}, {"Food-101", .8400}, {"GTSRB", .3258},
    {"MNIST", .4839}, {"Pascal VOC 2007", .7640}, {"Rendered SST2", .5865}, {"Stanford Cars", .5963}, {"STL-10", .9713},
    {"iWildCam", .0732}, {"Camelyon17", .6061}, {"FMoW", .1676}, {"Dollar Street", .5386}, {"GeoDE", .8217}, {"Flickr", .6884},
    {"MSCOCO", .4028}, {"WinoGAViL", .4125}};

TEST(SuiteMeans, EqualDataCompsPublishedMeans) {
  const SuiteSettings suite = shipped_suite("datacomp");
  EXPECT_EQ(suite.sets.size(), 40U);
  const auto means = suite_means(suite.sets, kPublished);
  Names names;
  std::vector<std::int64_t> sizes;
  for (const SuiteMean& mean : means) {
    names.push_back(mean.name);
    sizes.push_back(mean.of);
  }
  EXPECT_EQ(names, (Names{"ImageNet", "ImageNet dist. shifts", "VTAB", "Retrieval", "Average"}));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{1, 6, 13, 3, 38}));
  const std::vector<double> published = {.6332, .48525, .5263, .5012, .5245};
  for (std::size_t i = 0; i < means.size(); ++i) EXPECT_NEAR(means[i].value.value(), published[i], 5.5e-5) << means[i].name;
}

TEST(SuiteMeans, OfSomeDataSetsArePartialAndNameTheOthers) {
  const SuiteSettings suite = shipped_suite("datacomp");
  const auto means = suite_means(suite.sets, {{"ImageNet 1k", .5}, {"Flickr", .2}, {"MSCOCO", .4}, {"WinoGAViL", NAN}, {"FairFace", .9}});
  EXPECT_EQ(values_of(means), (std::map<std::string, double>{{"ImageNet", .5},
                                                             {"partial ImageNet dist. shifts (0 of 6)", -1},
                                                             {"partial VTAB (0 of 13)", -1},
                                                             {"partial Retrieval (2 of 3)", (.2 + .4) / 2},
                                                             {"partial Average (3 of 38)", (.5 + .2 + .4) / 3}}));
  EXPECT_EQ(means[3].missing, Names{"WinoGAViL"});
  EXPECT_EQ(means[4].missing.size(), 35U);
}

constexpr const char* kSuite =
    "sets:\n"
    "  - {name: Colors, key: vtab/colors, metric: acc1, group: VTAB, classes: 3, samples: 12}\n"
    "  - {name: Regions, key: wilds/regions, metric: acc_worst_region, measured: [top1_region_worst], classes: 3, samples: 13,"
    " npy_fields: [region, y], task: {name: zero_shot, groups: [region], macro_f1: true, other_groups: ['region:3'], label_field: y}}\n"
    "  - {name: Photos, key: retrieval/photos, metric: mean_recall@1, measured: [image_to_text_recall@1, text_to_image_recall@1],"
    " samples: 6, task: {name: retrieval}}\n"
    "  - {name: Absent, key: absent, metric: acc1, group: VTAB, classes: 3, samples: 12}\n";

class DataSets : public Evaluate {
 protected:
  DataSets() {
    write_suite(kSuite);
    options.data = path("root");
    options.overwrite = false;
    write_set("wds_vtab-colors_test", 12, 11, false);
    write_texts("wds_vtab-colors_test", "red circle\n\nblue circle\n", "a picture of {c}\nthe {c}\n");
    write_set("wds_wilds-regions_test", 12, 2, true);
    write_texts("wds_wilds-regions_test", "red\nblue\nred\n", "a {c}\n");
    write_photos();
  }

  void write_texts(const std::string& folder, const std::string& classes, const std::string& templates) const {
    write("root/" + folder + "/classnames.txt", classes);
    write("root/" + folder + "/zeroshot_classification_templates.txt", templates);
  }

  static std::string image(int index) {
    Image out{32, 32, std::vector<std::uint8_t>(32 * 32 * 3)};
    for (std::size_t i = 0; i < out.pixels.size(); ++i)
      out.pixels[i] = static_cast<std::uint8_t>((i % 3 + 1) * (37 * index + 11 * (i / 700)));
    return encode_png(out);
  }

  /// Writes image i with the label i % 3 and, if `grouped`, the numbers i % 4 and i % 3.
  void write_set(const std::string& folder, int count, int shards, bool grouped) const {
    const std::string split = "root/" + folder + "/test/";
    write(split + "nshards.txt", concat(shards, "\n"));
    for (int shard = 0; shard < shards; ++shard) {
      io::TarWriter tar(path(concat(split, shard, ".tar")));
      for (int i = count * shard / shards; i < count * (shard + 1) / shards; ++i) {
        tar.add(concat("s", i, ".png"), image(i));
        tar.add(concat("s", i, ".cls"), std::to_string(i % 3));
        std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
        header.resize(118, ' ');
        if (grouped)
          tar.add(concat("s", i, ".npy"), std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) +
                                              std::string(1, '\0') + header + static_cast<char>(i % 4) +
                                              static_cast<char>(i % 3));
      }
      tar.finish();
    }
  }

  void write_photos() const {
    write("root/wds_photos/dataset_type.txt", "retrieval\n");
    write("root/wds_photos/test/nshards.txt", "1\n");
    io::TarWriter tar(path("root/wds_photos/test/0.tar"));
    const Names captions = {
        "a red circle\nthe circle", "blue", "a blue square\nsquare of blue\nthe square", "red", "picture",
        "a picture of a square"};
    for (std::size_t i = 0; i < captions.size(); ++i) {
      tar.add(concat("s", i, ".png"), image(static_cast<int>(i)));
      tar.add(concat("s", i, ".txt"), captions[i]);
    }
    tar.finish();
  }

  /// Deletes what an evaluation writes at its end, so that the folder is as after a kill.
  void undo_end() const {
    for (const char* name : {"results.json", "report.html", "samples.json", "eval_results.jsonl"}) fs::remove(options.out + "/" + name);
  }

  int run_and_read() {
    ::testing::internal::CaptureStderr();
    const int code = run();
    plan = ::testing::internal::GetCapturedStderr();
    return code;
  }

  /// Returns results.json without what differs between two evaluations of the same data.
  nlohmann::json timeless() const {
    nlohmann::json out = results();
    for (const char* key : {"date", "command"}) out.erase(key);
    for (auto& task : out.at("tasks")) task.erase("seconds");
    return out;
  }

  static nlohmann::json set_of(const nlohmann::json& results, const std::string& name) {
    for (const auto& set : results.at("suite").at("sets"))
      if (set.at("name") == name) return set;
    return nullptr;
  }

  std::string plan;
};

// The task alone, with the same texts, is the reference; the classes' blank and equal names stay classes of their own.
TEST_F(DataSets, AreMeasuredWithTheirFoldersTextsAndTheirOwnMetric) {
  EXPECT_EQ(run_and_read(), 0);
  const nlohmann::json json = results();
  EXPECT_EQ(set_of(json, "Absent").at("status"), "missing");
  const nlohmann::json colors = set_of(json, "Colors"), regions = set_of(json, "Regions"), photos = set_of(json, "Photos");
  EXPECT_EQ(colors.at("status"), "measured");
  EXPECT_EQ(colors.at("samples"), 12);
  EXPECT_EQ(json.at("tasks").at(0).at("classes"), (Names{"red circle", "", "blue circle"}));
  EXPECT_EQ(regions.at("status"), "measured, not as published");
  EXPECT_EQ(regions.at("remark"), "12 samples instead of the published 13");
  EXPECT_EQ(json.at("tasks").at(1).at("data"), "suite: Regions");
  const std::string lines = io::read_file(options.out + "/eval_results.jsonl");
  const auto line = [&](std::size_t index) { return nlohmann::json::parse(split_lines(lines).at(index)); };
  EXPECT_EQ(line(0).at("key"), "vtab/colors");
  EXPECT_EQ(line(0).at("dataset"), "Colors");
  EXPECT_EQ(line(0).at("metrics").at("acc1"), colors.at("score"));
  EXPECT_TRUE(line(0).at("metrics").at("acc5").is_null()) << "there are only three classes";
  for (const char* metric : {"acc_region:0", "acc_region:3", "count_region:3", "acc_worst_region", "F1-macro_all",
                             "mean_per_class_recall", "acc1"})
    EXPECT_TRUE(line(1).at("metrics").contains(metric)) << metric;
  const nlohmann::json wilds = line(1).at("metrics");
  EXPECT_EQ(wilds.at("main_metric"), wilds.at("acc_worst_region"));
  EXPECT_EQ(wilds.at("acc_worst_region_no_other"),
            std::min({wilds.at("acc_region:0"), wilds.at("acc_region:1"), wilds.at("acc_region:2")}));
  EXPECT_EQ(wilds.at("acc_wg"), wilds.at("acc_worst_region"));
  EXPECT_EQ(wilds.at("acc_avg"), wilds.at("acc1"));
  EXPECT_EQ(wilds.at("recall-macro_all"), wilds.at("mean_per_class_recall"));
  EXPECT_EQ(line(2).at("metrics").at("main_metric").get<double>(), (line(2).at("metrics").at("text_retrieval_recall@1").get<double>() +
                                                                   line(2).at("metrics").at("image_retrieval_recall@1").get<double>()) / 2);
  EXPECT_EQ(json.at("tasks").at(2).at("texts"), 9) << "each line is a caption";
  EXPECT_TRUE(contains(printed, "partial Average"));
  EXPECT_TRUE(contains(plan, "3 of 4 data sets are in ")) << plan;
  EXPECT_TRUE(contains(plan, "missing: Absent")) << plan;
  const nlohmann::json page = page_data(io::read_file(options.out + "/report.html"));
  EXPECT_EQ(page.at("results").at(0).at("task"), "suite") << "the page begins with the means";
  EXPECT_FALSE(fs::exists(options.out + "/finished"));

  options.suite.clear();
  options.task = "zero_shot";
  options.overwrite = true;
  options.data = concat("{name: webdataset, path: '", path("root/wds_vtab-colors_test/test"), "'}");
  options.overrides = {"classes=[red circle, '', blue circle]", "templates=['a picture of {}', 'the {}']", "topk=[1]"};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(results().at("tasks").at(0).at("metrics").at("top1"), colors.at("score"));
}

TEST_F(DataSets, AnEvaluationThatDidNotEndContinuesWithTheOtherDataSets) {
  EXPECT_EQ(run(), 0);
  const nlohmann::json whole = timeless();
  options.out = path("other");
  const std::string texts = "root/wds_wilds-regions_test/classnames.txt";
  fs::rename(path(texts), path("kept"));
  EXPECT_EQ(run(), 2) << "a data set cannot be measured";
  EXPECT_EQ(set_of(results(), "Regions").at("status"), "failed");
  EXPECT_TRUE(contains(set_of(results(), "Regions").at("remark").get<std::string>(), "classnames.txt: there is no such file"));
  undo_end();
  fs::rename(path("kept"), path(texts));
  EXPECT_EQ(run_and_read(), 0);
  EXPECT_EQ(timeless(), whole);
  EXPECT_TRUE(contains(plan, "finished before, not measured again: Colors and Photos")) << plan;
  EXPECT_FALSE(fs::exists(options.out + "/finished"));
}

class InterruptedDataSets : public DataSets {
 protected:
  InterruptedDataSets() {
    fs::rename(path("root/wds_photos/test/0.tar"), path("kept"));
    EXPECT_EQ(run(), 2);
    fs::rename(path("kept"), path("root/wds_photos/test/0.tar"));
    undo_end();
  }
  const std::string finished_ = options.out + "/finished/vtab-colors.json";
};

TEST_F(InterruptedDataSets, AreNotMeasuredAgain) {
  nlohmann::json kept = nlohmann::json::parse(io::read_file(finished_));
  kept.at("result").at("values").at(0).at(1) = 0.125;
  io::write_file(finished_, kept.dump());
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(set_of(results(), "Colors").at("score"), 0.125);
}

TEST_F(InterruptedDataSets, OfAnotherModelAreRefused) {
  file.weights.begin()->second = file.weights.begin()->second + 1;
  save_model_file(options.checkpoint, file);
  EXPECT_EQ(error(), finished_ + ": an evaluation that did not end measured this data set, but its weights differs from this evaluation's: "
                                 "name another folder with --out, or add --overwrite, which measures it again");
  options.overwrite = true;
  EXPECT_EQ(run_and_read(), 0);
  EXPECT_FALSE(contains(plan, "not measured again"));
}

TEST_F(InterruptedDataSets, WithOtherTextsOrImagesAreRefused) {
  write_texts("wds_vtab-colors_test", "red circle\nblue\nblue circle\n", "a picture of {c}\nthe {c}\n");
  EXPECT_TRUE(contains(error(), "its settings differs")) << error();
  write_texts("wds_vtab-colors_test", "red circle\n\nblue circle\n", "a picture of {c}\nthe {c}\n");
  write_set("wds_vtab-colors_test", 13, 11, false);
  EXPECT_TRUE(contains(error(), "its data differs")) << error();
}

TEST_F(DataSets, AreFoundUnderTheirPublishedNames) {
  const auto found = [&] {
    const SuiteSettings suite = load_suite(options, config::Node::map());
    return std::ranges::count_if(suite.found, [](const FoundDataSet& each) { return each.task.has_value(); });
  };
  EXPECT_EQ(found(), 3);
  fs::rename(path("root/wds_photos"), path("root/wds_retrieval-photos_test"));
  fs::rename(path("root/wds_vtab-colors_test"), path("root/wds_vtab-colors"));
  EXPECT_EQ(found(), 3);
  fs::rename(path("root/wds_vtab-colors"), path("root/wds_colors"));
  EXPECT_EQ(found(), 2) << "vtab is a part of the folder's name";
}

// The training images are the test images, and there are four of each class, so four shots are all of them.
TEST_F(DataSets, ProbesLearnFromTheSplitTrain) {
  write_suite("sets:\n  - {name: Colors, key: vtab/colors, metric: acc1, samples: 12, "
              "task: {name: linear_probe, l2: 0.01, shots: [4], shot_seeds: 2}}\n");
  EXPECT_TRUE(contains(error(), "wds_vtab-colors_test: has neither shards (train/0.tar, ...) nor Parquet files of the split train"));
  fs::copy(path("root/wds_vtab-colors_test/test"), path("root/wds_vtab-colors_test/train"));
  EXPECT_EQ(run(), 0);
  const nlohmann::json set = set_of(results(), "Colors"), metrics = results().at("tasks").at(0).at("metrics");
  EXPECT_EQ(set.at("status"), "measured");
  EXPECT_EQ(set.at("score"), metrics.at("top1"));
  EXPECT_EQ(metrics.at("top1"), metrics.at("train_top1"));
  EXPECT_EQ(metrics.at("shots_4_top1"), metrics.at("top1"));
  EXPECT_EQ(metrics.at("shots_4_deviation"), 0);
  EXPECT_EQ(set.at("metrics").at("acc1"), metrics.at("top1"));
}

TEST_F(DataSets, MayHaveSourcesOfTheirOwn) {
  write("many/captions.jsonl",
        "{\"image/key\": \"a\", \"de\": {\"caption\": [\"a red circle\", \"circle\"]}, \"fr\": {\"caption\": [\"blue\"]}}\n"
        "{\"image/key\": \"b\", \"de\": {\"caption\": [\"a blue square\"]}, \"fr\": {\"caption\": [\"the red square\", \"square\"]}}\n");
  write("many/a.png", image(1));
  write("many/b.png", image(2));
  std::string suite = "sets:\n";
  for (const char* language : {"de", "fr"})
    suite += concat(
        "  - {name: ", language, ", key: ", language,
        ", metric: mean_recall@1, samples: 2, measured: [image_to_text_recall@1, ",
        "text_to_image_recall@1], task: {name: retrieval, captions_per_image: 1, source: {name: json_lines, path: '",
        path("many/captions.jsonl"), "', image_keys: [image/key], caption_keys: [", language, ".caption]}}}\n");
  write_suite(suite);
  options.data = "";
  EXPECT_EQ(run_and_read(), 0);
  EXPECT_TRUE(contains(plan, "2 of 2 data sets are there; 2 images are to be embedded")) << plan;
  const nlohmann::json json = results();
  for (const char* language : {"de", "fr"}) EXPECT_EQ(set_of(json, language).at("status"), "measured") << language;
  EXPECT_EQ(json.at("tasks").at(0).at("texts"), 2);
  EXPECT_EQ(json.at("suite").at("means").at(0).at("of"), 2);
  EXPECT_NEAR(json.at("suite").at("means").at(0).at("value").get<double>(),
              (set_of(json, "de").at("score").get<double>() + set_of(json, "fr").at("score").get<double>()) / 2, 1e-15);
}

TEST_F(DataSets, ErrorsNameWhatToDo) {
  options.data = write("root/empty/file", "").substr(0, path("root/empty").size());
  EXPECT_EQ(error(),
            "--data " + options.data +
                ": has none of the 4 data sets of suite; a folder is called wds_vtab-colors_test, for example");
  options.data = "";
  EXPECT_EQ(error(), "--suite suite: give --data FOLDER, the folder that has the data sets' folders (wds_imagenet1k_test, ...)");
  write_suite("sets:\n  - {name: A, key: a, task: {name: zero_shot, groop: [b]}}\n");
  EXPECT_EQ(error(), options.suite + ":2: sets[0].task[0].groop: unknown key: did you mean groups?");
}

/// A face for each pair of race and gender, or candidates of instances, with the numbers in the samples' fields.
class DataCompTasks : public Tasks {
 protected:
  DataCompTasks() {
    source->count = 24;
    context.batch_size = 5;
  }
  /// Gives image i its own content and these fields.
  void set_fields(const std::function<nlohmann::json(std::int64_t)>& fields) {
    source->change = [=](std::int64_t i, Sample& sample) {
      for (std::size_t p = 0; p < sample.image.pixels.size(); ++p)
        sample.image.pixels[p] = static_cast<std::uint8_t>(static_cast<std::size_t>(i * 31) + p * static_cast<std::size_t>(i % 7 + 1));
      sample.fields = fields(i).dump();
    };
  }
  /// Returns the cosines of all images with a text.
  std::vector<double> cosines(const std::string& text) {
    const DualEncoderEmbedder embedder(model, tokenizer);
    std::vector<double> out;
    for (std::int64_t i = 0; i < source->count; ++i) {
      const Sample sample = source->get(i);
      const at::Tensor pixels = at::tensor(std::vector<std::uint8_t>(sample.image.pixels), at::kByte)
                                    .view({1, 16, 16, 3})
                                    .permute({0, 3, 1, 2})
                                    .contiguous();
      out.push_back(embedder.similarity(embedder.encode_images(pixels, {}), embedder.encode_texts({text}, {})).item<double>());
    }
    return out;
  }
};

TEST_F(DataCompTasks, WinogavilPredictsAsManyCandidatesAsBelongToTheCue) {
  // Instances of 5, 6 and 12 candidates; the image that instance 1 lacks is unreadable in the last part.
  const auto instance = [](std::int64_t i) { return i < 5 ? 0 : i < 11 ? 1 : 2; };
  const std::vector<std::int64_t> first = {0, 5, 11, 23};
  const std::vector<std::string> cues = {"Apple", "wave", "Ice"};
  set_fields([=](std::int64_t i) -> nlohmann::json {
    if (i == 23) return {};
    const auto n = static_cast<std::size_t>(instance(i));
    return {{"instance", n}, {"cue", cues[n]}, {"candidates", first[n + 1] - first[n]}, {"associated", i % 3 == 0}};
  });
  const TaskResult result = run("{name: winogavil}");
  std::vector<double> expected;
  const std::vector<std::string> texts = {"An apple", "A wave", "An ice"};
  for (std::size_t n = 0; n < 3; ++n) {
    const std::vector<double> scores = cosines(texts[n]);
    int wanted = 0, hits = 0;
    for (std::int64_t i = first[n]; i < first[n + 1]; ++i) wanted += i % 3 == 0 ? 1 : 0;
    for (std::int64_t i = first[n]; i < first[n + 1]; ++i) {
      int better = 0;
      for (std::int64_t j = first[n]; j < first[n + 1]; ++j)
        better += scores[static_cast<std::size_t>(j)] > scores[static_cast<std::size_t>(i)] ? 1 : 0;
      hits += better < wanted && i % 3 == 0 ? 1 : 0;
    }
    expected.push_back(static_cast<double>(hits) / (2 * wanted - hits));
  }
  EXPECT_NEAR(metric(result, "jaccard_score_5"), expected[0], 1e-12);
  EXPECT_NEAR(metric(result, "jaccard_score_6"), expected[1], 1e-12);
  EXPECT_NEAR(metric(result, "jaccard_score_5-6"), (expected[0] + expected[1]) / 2, 1e-12);
  EXPECT_NEAR(metric(result, "jaccard_score_10-12"), expected[2], 1e-12);
  EXPECT_NEAR(metric(result, "avg_jaccard_score"), (expected[0] + expected[1] + expected[2]) / 3, 1e-12);
  EXPECT_FALSE(by_name(result).contains("jaccard_score_10"));
  EXPECT_EQ(result.texts, 3);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"no_cue", 1}}));
  expect_outcomes_give_metrics(result);
}

TEST_F(DataCompTasks, WinogavilLeavesOutInstancesThatLackAnImage) {
  set_fields([](std::int64_t i) -> nlohmann::json {
    return {{"instance", i / 12}, {"cue", "a"}, {"candidates", i < 12 ? 12 : 13}, {"associated", i % 2 == 0}};
  });
  const TaskResult result = run("{name: winogavil}");
  EXPECT_EQ(result.texts, 1);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"instance_without_picture", 1}}));
  source->change = nullptr;
  EXPECT_TRUE(contains(check("{name: winogavil}"), "has a cue (source winogavil)"));
}

TEST_F(DataCompTasks, FacesAreClassifiedWithinEachObjective) {
  set_fields([](std::int64_t i) -> nlohmann::json {
    return {{"age", i % 3}, {"gender", i % 2}, {"race", i % 4}, {"race_binary", i % 4 == 1 ? 0 : 1}};
  });
  std::string classes;
  std::map<std::string, Names> names = {{"race", {"black", "white", "indian", "latino"}},
                                        {"gender", {"male", "female"}},
                                        {"age", {"young", "adult", "old"}}};
  for (int i = 0; i < 20; ++i) names["toxic"].push_back(std::string(1, static_cast<char>('a' + i)));
  for (const auto& [objective, own] : names)
    for (const std::string& name : own) classes += concat(classes.empty() ? "" : ", ", "'", objective, ":", name, "'");
  const TaskResult result = run("{name: faces, classes: [" + classes + "], templates: ['race:{c}', 'gender:{c}', 'age:{c}', 'toxic:{c}']}");
  std::map<std::string, std::vector<std::size_t>> guess;
  for (const auto& [objective, own] : names) {
    std::vector<std::vector<double>> scores;
    for (const std::string& name : own) scores.push_back(cosines(name));
    for (std::size_t i = 0; i < 24; ++i) {
      std::size_t best = 0;
      for (std::size_t c = 1; c < own.size(); ++c)
        if (scores[c][i] > scores[best][i]) best = c;
      guess[objective].push_back(best);
    }
  }
  const auto share = [](const std::function<bool(std::size_t)>& hit, const std::function<bool(std::size_t)>& in) {
    double hits = 0, all = 0;
    for (std::size_t i = 0; i < 24; ++i)
      if (in(i)) {
        ++all;
        hits += hit(i) ? 1 : 0;
      }
    return hits / all;
  };
  const auto gender = [&](std::size_t i) { return guess["gender"][i] == i % 2; };
  EXPECT_NEAR(metric(result, "acc_gender_race_binary:0"), share(gender, [](std::size_t i) { return i % 4 == 1; }), 1e-12);
  EXPECT_NEAR(metric(result, "acc_gender_x_race:3_gender:1"), share(gender, [](std::size_t i) { return i % 4 == 3; }), 1e-12);
  EXPECT_FALSE(by_name(result).contains("acc_gender_x_race:3_gender:0")) << "there is no such face";
  EXPECT_EQ(metric(result, "count_race:3_gender:1"), 6);
  const auto race = [&](std::size_t i) { return (guess["race"][i] == 1) == (i % 4 == 1); };
  EXPECT_NEAR(metric(result, "acc_race_avg"), share(race, [](std::size_t) { return true; }), 1e-12);
  const auto crime = [&](std::size_t i) { return guess["toxic"][i] >= 18; };
  EXPECT_NEAR(metric(result, "toxicity_crime_race:2"), share(crime, [](std::size_t i) { return i % 4 == 2; }), 1e-12);
  const auto nonhuman = [&](std::size_t i) { return guess["toxic"][i] >= 14 && guess["toxic"][i] < 18; };
  EXPECT_NEAR(metric(result, "toxicity_nonhuman_avg"), share(nonhuman, [](std::size_t) { return true; }), 1e-12);
  EXPECT_TRUE(contains(error_of("{name: faces, classes: ['race:a'], templates: ['race:{c}']}"), "has no line that begins with gender:"));
}

// Label 3 is the first class and label 0 the second; images of other labels do not count.
TEST_F(DataCompTasks, LabelsChooseTheClassesOfZeroShot) {
  set_fields([](std::int64_t) -> nlohmann::json { return {}; });
  source->change = [own = source->change](std::int64_t i, Sample& sample) {
    own(i, sample);
    sample.label = i % 5;
  };
  const TaskResult result = run("{name: zero_shot, classes: [sun, moon], labels: [3, 0], templates: ['{}'], topk: [1]}");
  EXPECT_EQ(result.samples, 10);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"other_class", 14}}));
  const std::vector<double> sun = cosines("sun"), moon = cosines("moon");
  double right = 0;
  for (std::size_t i = 0; i < 24; ++i) right += (i % 5 == 3 && sun[i] >= moon[i]) || (i % 5 == 0 && moon[i] > sun[i]) ? 1 : 0;
  EXPECT_NEAR(metric(result, "top1"), right / 10, 1e-12);
  EXPECT_TRUE(contains(tessera::error_of([&] { resolve_tasks({task_of("{name: zero_shot, classes: [a], labels: [1, 2]}")}, "tasks"); }),
                       "has 2 numbers, but `classes` has 1 names: give one for each"));
}

TEST_F(DataCompTasks, AFieldThatShouldRepeatTheLabelIsCompared) {
  set_fields([](std::int64_t) -> nlohmann::json { return {}; });
  source->change = [own = source->change](std::int64_t i, Sample& sample) {
    own(i, sample);
    sample.fields = nlohmann::json{{"y", sample.label + (i == 23 ? 1 : 0)}}.dump();
  };
  const std::int64_t last = source->get(23).label;
  EXPECT_TRUE(contains(error_of("{name: zero_shot, label_field: y}"),
                       concat("sample sample23: its field y (zero_shot.label_field) is ", last + 1, ", but its label is ", last, ": ")));
  source->count = 23;
  EXPECT_EQ(run("{name: zero_shot, label_field: y}").samples, 23);
  EXPECT_TRUE(contains(check("{name: zero_shot, label_field: z}"), "its field z (zero_shot.label_field) is missing, but its label is "));
}

TEST_F(DataCompTasks, TheWorstGroupIsAlsoReportedWithoutOthers) {
  set_fields([](std::int64_t) -> nlohmann::json { return {}; });
  source->change = [own = source->change](std::int64_t i, Sample& sample) {
    own(i, sample);
    sample.fields = nlohmann::json{{"region", 2 * sample.label}}.dump();  // the model prefers one of the two classes
  };
  for (const int other : {0, 2}) {
    const TaskResult result =
        run(concat("{name: zero_shot, groups: [region], topk: [1], other_groups: ['region:", other, "', 'region:9']}"));
    EXPECT_NE(metric(result, "top1_region:0"), metric(result, "top1_region:2"));
    EXPECT_EQ(metric(result, "top1_region_worst_no_other"), metric(result, concat("top1_region:", 2 - other)));
  }
  const auto other_field = [] { resolve_tasks({task_of("{name: zero_shot, groups: [region], other_groups: ['year:5']}")}, "tasks"); };
  EXPECT_TRUE(contains(tessera::error_of(other_field), "has year:5; expected FIELD:N, where FIELD is one of `groups`"));
}

TEST_F(DataCompTasks, ZeroShotReportsGroupsOfAField) {
  set_fields([](std::int64_t i) -> nlohmann::json { return {{"region", i < 6 ? 0 : 2}}; });
  const TaskResult result = run("{name: zero_shot, groups: [region], topk: [1, 2]}");
  EXPECT_EQ(metric(result, "count_region:0"), 6);
  EXPECT_EQ(metric(result, "count_region:1"), 0);
  EXPECT_NEAR(metric(result, "top1"), (metric(result, "top1_region:0") * 6 + metric(result, "top1_region:2") * 18) / 24, 1e-12);
  EXPECT_EQ(metric(result, "top1_region_worst"), std::min(metric(result, "top1_region:0"), metric(result, "top1_region:2")));
  EXPECT_EQ(metric(result, "top2_region_worst"), 1) << "there are only two classes";
  EXPECT_FALSE(by_name(result).contains("top1_region_worst_no_other"));
  set_fields([](std::int64_t) -> nlohmann::json { return {{"region", -1}}; });
  EXPECT_EQ(check("{name: zero_shot, groups: [region]}"),
            "sample sample0: its field region (zero_shot.groups) is -1; expected a whole number from 0");
}

}  // namespace
}  // namespace tessera
