#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/io/atomic_file.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// A tiny model with random weights, saved as a run would.
class Evaluate : public ::testing::Test {
 protected:
  Evaluate() : folder_(fs::temp_directory_path() / concat("tessera_evaluate_", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options.checkpoint = (folder_ / "model.safetensors").string();
    options.out = (folder_ / "out").string();
    options.device = "cpu";
    ModelFile file;
    file.model = config::read<ModelSettings>(config::parse_yaml(
        "image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}\n"
        "text: {encoder: {name: text_transformer, vocab_size: 200, context_length: 24, width: 32, layers: 1, heads: "
        "2}}\n"
        "preprocessing: {image_size: 32}\n",
        "model.yaml"));
    at::manual_seed(3);
    file.weights = DualEncoder(file.model).state_dict();
    file.tokenizer.name = "wordpiece";
    file.tokenizer.settings = config::parse_yaml("{context_length: 24}", "tokenizer.yaml");
    file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ncircle\nsquare\npicture\nof\nthe\n";
    file.extra["step"] = "7";
    file.extra["config"] = "objective: {name: sparc}\ndata: {validation: {name: shapes, split: validation, size: 9}}\n";
    save_model_file(options.checkpoint, file);
  }
  ~Evaluate() override { fs::remove_all(folder_); }

  void write_suite(const std::string& text) {
    options.suite = (folder_ / "suite.yaml").string();
    std::ofstream(options.suite) << text;
  }
  int run() {
    ::testing::internal::CaptureStdout();
    const int code = evaluate(options);
    printed = ::testing::internal::GetCapturedStdout();
    return code;
  }
  std::string error() {
    try {
      run();
    } catch (const UserError& problem) {
      ::testing::internal::GetCapturedStdout();
      return problem.what();
    }
    return "no error";
  }

  fs::path folder_;
  EvaluateOptions options;
  std::string printed;
};

TEST_F(Evaluate, WritesResultsAndAReportThatNeedsNothingElse) {
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "train: {name: shapes, size: 40}\n"
      "tasks: [zero_shot, retrieval, segmentation, hard_negatives, {name: linear_probe, l2: 0.01}, {name: knn, k: "
      "3}]\n");
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(io::read_file(options.out + "/results.json"));
  ASSERT_EQ(json.at("tasks").size(), 6U);
  EXPECT_EQ(json.at("step"), 7);
  for (const auto& task : json.at("tasks")) EXPECT_EQ(task.at("samples"), 12) << task;
  EXPECT_NE(printed.find("image_to_text_recall@5"), std::string::npos);
  const std::string html = io::read_file(options.out + "/report.html");
  for (const char* outside : {"http:", "https:", "<script", "<link", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(html.find("ground truth"), std::string::npos);
  EXPECT_NE(html.find("sparc"), std::string::npos);
}

TEST_F(Evaluate, ASecondRunGivesTheSameNumbers) {
  options.task = "retrieval";
  options.data = "{name: shapes, split: test, size: 12}";
  options.json = true;
  run();
  auto first = nlohmann::json::parse(printed);
  run();
  EXPECT_EQ(first.at("tasks").at(0).at("metrics"), nlohmann::json::parse(printed).at("tasks").at(0).at("metrics"));
}

TEST_F(Evaluate, TakesTheRunsValidationDataWhereNoneIsNamed) {
  options.task = "zero_shot";
  options.json = true;
  run();
  EXPECT_EQ(nlohmann::json::parse(printed).at("tasks").at(0).at("samples"), 9);
}

TEST_F(Evaluate, MistakesAreNamedInOneLine) {
  options.task = "zero_shot";
  options.overrides = {"templates=[a photo]"};
  EXPECT_NE(error().find("tasks[0].templates: template 1, \"a photo\", has no {} where the class name goes"),
            std::string::npos);
  options.overrides = {};
  options.data = "nowhere";
  EXPECT_EQ(error().find("--data nowhere: there is no such file or folder, and no source of this name"), 0U);
  options.checkpoint = "missing";
  EXPECT_EQ(error(), "checkpoint missing does not exist: give a model file, a checkpoint folder or a run folder");
  options.device = "tpu";
  options.checkpoint = folder_.string();
  EXPECT_EQ(error(), "--device tpu: expected auto, cpu, cuda or cuda:N");
}

}  // namespace
}  // namespace tessera
