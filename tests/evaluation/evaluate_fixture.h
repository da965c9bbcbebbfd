#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/evaluation/task_case.h"
#include "tests/support/shards.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/io/atomic_file.h>
#include <tessera/models/model_file.h>

namespace tessera {

namespace fs = std::filesystem;

/// A fixture with a tiny model of random weights, saved as a run saves it.
class Evaluate : public FolderTest {
 protected:
  Evaluate() {
    options.checkpoint = path("model.safetensors");
    options.out = path("out");
    options.device = "cpu";
    options.overwrite = true;
    file.tokenizer.name = "wordpiece";
    file.tokenizer.settings = config::parse_yaml("{context_length: 24}", "tokenizer.yaml");
    file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ncircle\nsquare\npicture\nof\nthe\n";
    file.extra["step"] = "7";
    file.extra["config"] = "objective: {name: sparc}\ndata: {validation: {name: shapes, split: validation, size: 9}}\n";
    save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}");
  }

  void save_model(const std::string& image, const std::string& text = kTextTower) {
    file.model = config::read<ModelSettings>(
        config::parse_yaml(image + "\n" + text + "\npreprocessing: {image_size: 32}\n", "model.yaml"));
    at::manual_seed(3);
    file.weights = DualEncoder(file.model).state_dict();
    save_model_file(options.checkpoint, file);
  }
  /// Writes images of `shapes` to a tar and to a compressed copy of it, which can only be read as a stream. Returns both paths.
  std::pair<std::string, std::string> shards(const std::string& name, int size) {
    const auto source = sources().make(task_of(concat("{name: shapes, split: test, size: ", size, "}")), "source");
    const std::string tar = write_shards(*source, {.folder = path(name)}).front();
    EXPECT_EQ(std::system(("gzip -k " + tar).c_str()), 0);
    return {tar, tar + ".gz"};
  }
  /// Reads results.json.
  nlohmann::json results() const { return nlohmann::json::parse(io::read_file(options.out + "/results.json")); }
  void write_suite(const std::string& text) {
    options.suite = write("suite.yaml", text);
  }
  int run() {
    ::testing::internal::CaptureStdout();
    try {
      const int code = evaluate(options);
      printed = ::testing::internal::GetCapturedStdout();
      return code;
    } catch (const UserError&) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
  }
  std::string error() {
    return error_of([&] { run(); });
  }

  static constexpr const char* kTextTower =
      "text: {encoder: {name: text_transformer, vocab_size: 200, context_length: 24, width: 32, layers: 1, heads: 2}}";

  ModelFile file;
  EvaluateOptions options;
  std::string printed;
};

}  // namespace tessera
