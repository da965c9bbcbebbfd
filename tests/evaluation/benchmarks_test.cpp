// Runs the benchmark suites on miniature copies of their files (tests/data/benchmarks).

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "tests/evaluation/letter_tokenizer.h"
#include "tests/evaluation/task_case.h"
#include <tessera/evaluation/evaluate.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuites = TESSERA_SOURCE_DIR "/configs/suites";
constexpr const char* kMiniatures = TESSERA_SOURCE_DIR "/tests/data/benchmarks";

class Benchmarks : public ::testing::Test {
 protected:
  Benchmarks() {
    ::setenv("DATA", kMiniatures, 1);
    ::setenv("FOLDER", (std::string(kMiniatures) + "/pictures").c_str(), 1);
    at::manual_seed(3);
    const config::Node tree = config::parse_yaml(
        "image: {encoder: {name: vit, image_size: 16, patch_size: 8, width: 32, layers: 1, heads: 2}}\n"
        "text: {encoder: {name: text_transformer, vocab_size: 32, context_length: 24, width: 32, layers: 1, heads: "
        "2}}\n"
        "preprocessing: {image_size: 16}\n",
        "model.yaml");
    model_ = std::make_shared<DualEncoder>(config::read<ModelSettings>(tree));
  }
  ~Benchmarks() override {
    ::unsetenv("DATA");
    ::unsetenv("FOLDER");
  }

  static SuiteSettings load(const std::string& name) {
    EvaluateOptions options;
    options.suite = concat(kSuites, "/", name, ".yaml");
    return load_suite(options, config::Node::map());
  }

  std::vector<TaskResult> run(const SuiteSettings& suite) const {
    EvaluationContext context;
    context.batch_size = 4;
    if (suite.source) context.source = sources().make(*suite.source, "source");
    if (suite.train) context.train_source = sources().make(*suite.train, "train");
    const DualEncoderEmbedder embedder(model_, std::make_shared<LetterTokenizer>(24));
    std::vector<TaskResult> results;
    for (const config::ModuleSettings& task : suite.tasks) results.push_back(check_and_run(task, embedder, context));
    return results;
  }

  std::shared_ptr<DualEncoder> model_;
};

/// The number of images that each task of a suite measures in the miniature benchmark.
const std::map<std::string, std::vector<std::int64_t>> kSamples = {{"coco_karpathy_test5k", {2, 2}},
                                                                   {"coco_val2017", {2}},
                                                                   {"flickr30k_test1k", {2}},
                                                                   {"urban1k", {2}},
                                                                   {"docci", {2, 2}},
                                                                   {"sharegpt4v", {2, 2}},
                                                                   {"iiw_sentences", {2}},
                                                                   {"image_folder", {2}},
                                                                   {"cifar10_binary", {4, 4, 4}},
                                                                   {"cifar100_binary", {12, 12, 12}},
                                                                   {"winoground", {2}},
                                                                   {"colorswap", {2}},
                                                                   {"sugarcrepe", {1}},
                                                                   {"sugarcrepe_pp", {1}},
                                                                   {"svo_probes", {2}},
                                                                   {"foil", {1}},
                                                                   {"valse", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
                                                                   {"aro", {1, 1}},
                                                                   {"aro_order", {1, 1}},
                                                                   {"whatsup", {1, 1, 1, 1, 1, 1}},
                                                                   {"cola", {2}},
                                                                   {"mmvp", {2}},
                                                                   {"negbench", {1, 1}},
                                                                   {"spec", {4, 4}},
                                                                   {"vl_checklist", {1, 1, 1}},
                                                                   {"xm3600", std::vector<std::int64_t>(36, 2)}};

TEST_F(Benchmarks, EverySuiteRunsOnFilesInItsLayout) {
  for (const auto& [name, samples] : kSamples) {
    std::vector<std::int64_t> measured;
    for (const TaskResult& result : run(load(name))) {
      measured.push_back(result.samples);
      ASSERT_FALSE(result.metrics.empty()) << name;
      for (const auto& [metric, value] : result.metrics) EXPECT_TRUE(std::isfinite(value)) << name << " " << metric;
    }
    EXPECT_EQ(measured, samples) << name;
  }
}

TEST_F(Benchmarks, EverySuiteHasAMiniature) {
  for (const auto& entry : fs::directory_iterator(kSuites)) {
    const std::string name = entry.path().stem().string();
    static const std::set<std::string> segmentation = {"voc20",  "voc21",      "context59", "context60",
                                                       "ade20k", "coco_stuff", "cityscapes"};  // segmentation_suites_test tests these
    const bool elsewhere =
        name.starts_with("shapes") || name == "cifar10" || name == "imagenet" || segmentation.contains(name) ||
        name == "datacomp" || name == "vtab_probe";  // data_sets_test tests these
    EXPECT_TRUE(elsewhere || kSamples.contains(name)) << name << ": give it a miniature in " << kMiniatures;
  }
}

TEST_F(Benchmarks, ImageNetAssignsNamesInTheOrderOfItsThousandFolders) {
  const TemporaryFolder own;
  const fs::path folder = own.path();
  const std::string image = encode_png({8, 8, std::vector<std::uint8_t>(8 * 8 * 3, 90)});
  for (int i = 0; i < 1000; ++i) fs::create_directories(folder / "imagenet/val" / concat("n", 10000000 + i));
  io::write_file((folder / "imagenet/val/n10000001/x.JPEG").string(), image);
  ::setenv("DATA", folder.c_str(), 1);
  SuiteSettings suite = load("imagenet");
  suite.tasks.at(0).settings.set("templates", config::parse_yaml("['{}']", "test"));  // the suite's 80 templates would take too long
  const TaskResult result = run(suite).at(0);
  EXPECT_EQ(result.samples, 1);
  ASSERT_EQ(result.classes.size(), 1000U);
  EXPECT_EQ(result.classes[1], "goldfish");

  fs::remove(folder / "imagenet/val/n10000999");
  const std::string error = error_of<TaskMisfit>([&] { run(suite); });
  EXPECT_TRUE(contains(error, "has 999 classes, but zero_shot.classes names 1000"));
}

}  // namespace
}  // namespace tessera
