#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/evaluation/letter_tokenizer.h"
#include "tests/evaluation/task_case.h"
#include <tessera/data/source.h>
#include <tessera/evaluation/task.h>

/// The data, the model and the fixture of tests that run a task on a few plain images.
namespace tessera {

/// A source of images of a single gray value each. Class 0 is dark, class 1 is bright, and class 2 is `background`. Tests may `change`
/// samples.
class PlainSource final : public IndexedSource {
 public:
  std::int64_t count = 6;
  std::vector<std::string> names = {"dark", "bright", "background"};
  std::int64_t background = 2;
  std::function<void(std::int64_t, Sample&)> change;

  std::int64_t size() const override { return count; }
  Sample get(std::int64_t index) const override {
    Sample sample;
    sample.key = concat("sample", index);
    sample.label = index % 2;
    sample.image = {16, 16,
                    std::vector<std::uint8_t>(16 * 16 * 3, static_cast<std::uint8_t>(sample.label == 0 ? 20 : 220))};
    sample.captions = {sample.label == 0 ? "dark" : "bright", "a picture"};
    sample.mask.assign(16 * 16, 2);
    std::fill(sample.mask.begin(), sample.mask.begin() + 128, static_cast<std::uint8_t>(sample.label));
    if (change) change(index, sample);
    return sample;
  }
  std::vector<std::string> class_names() const override { return names; }
  std::int64_t background_class() const override { return background; }
  std::string describe() const override { return "plain pictures"; }
};

class Tasks : public ::testing::Test {
 protected:
  Tasks() {
    at::manual_seed(1);
    const config::Node tree = config::parse_yaml(
        "image: {encoder: {name: vit, image_size: 16, patch_size: 8, width: 32, layers: 1, heads: 2}}\n"
        "text: {encoder: {name: text_transformer, vocab_size: 32, context_length: 16, width: 32, layers: 1, heads: "
        "2}}\n"
        "preprocessing: {image_size: 16}\n",
        "model.yaml");
    model = std::make_shared<DualEncoder>(config::read<ModelSettings>(tree));
    model->train();
    source = std::make_shared<PlainSource>();
    context.source = source;
    context.train_source = source;
    context.batch_size = 4;
  }

  TaskResult run(const std::string& yaml) {
    return run_task(task_of(yaml), DualEncoderEmbedder(model, tokenizer), context);
  }
  std::string error_of(const std::string& yaml) {
    return tessera::error_of([&] { run(yaml); });
  }
  std::string check(const std::string& yaml) {
    return tessera::error_of<TaskMisfit>([&] { check_task(task_of(yaml), DualEncoderEmbedder(model, tokenizer), context); });
  }

  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<PlainSource> source;
  std::shared_ptr<LetterTokenizer> tokenizer = std::make_shared<LetterTokenizer>();
  EvaluationContext context;
};

}  // namespace tessera
