#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {
namespace {

/// Words to ids by first letter; enough to tell prompts apart.
class LetterTokenizer final : public Tokenizer {
 public:
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids = {1};
    for (const char c : text) {
      if (c >= 'a' && c <= 'z' && ids.size() + 1 < 16) ids.push_back(3 + c - 'a');
    }
    ids.push_back(2);
    return ids;
  }
  std::string decode(const std::vector<std::int64_t>&) const override { return ""; }
  std::int64_t vocab_size() const override { return 32; }
  std::int64_t context_length() const override { return 16; }
  std::int64_t pad_id() const override { return 0; }
  std::string name() const override { return "letters"; }
  const std::string& vocabulary_bytes() const override { return none_; }

 private:
  std::string none_;
};

/// Plain pictures: class 0 dark, class 1 bright, class 2 `background`; the third sample is what a test makes of it.
class PlainSource final : public IndexedSource {
 public:
  std::int64_t count = 6;
  bool named = true;
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
  std::vector<std::string> class_names() const override {
    return named ? std::vector<std::string>{"dark", "bright", "background"} : std::vector<std::string>{};
  }
  std::int64_t background_class() const override { return 2; }
  std::string describe() const override { return "plain pictures"; }
};

config::ModuleSettings task(const std::string& yaml) {
  return config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, "task.yaml"), "", {});
}

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

  TaskResult run(const std::string& yaml) { return run_task(task(yaml), *model, tokenizer, context); }
  std::string error_of(const std::string& yaml) {
    try {
      run(yaml);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<PlainSource> source;
  LetterTokenizer tokenizer;
  EvaluationContext context;
};

TEST_F(Tasks, ZeroShotLeavesTheBackgroundOut) {
  context.pictures = true;
  const TaskResult result = run("{name: zero_shot, topk: [1, 2]}");
  EXPECT_EQ(result.samples, 6);
  EXPECT_EQ(result.pictures.class_names, (std::vector<std::string>{"dark", "bright"}));
  EXPECT_EQ(result.metrics.at(1), (std::pair<std::string, double>("top2", 1.0)));
  EXPECT_EQ(result.pictures.classification.size(), 6U);
}

TEST_F(Tasks, PutTheModelsModeBack) {
  run("{name: retrieval}");
  EXPECT_TRUE(model->is_training());
  model->eval();
  run("{name: retrieval}");
  EXPECT_FALSE(model->is_training());
}

TEST_F(Tasks, GiveTheSameNumbersWhateverTheBatchSize) {
  const TaskResult a = run("{name: segmentation}");
  context.batch_size = 1;
  const TaskResult b = run("{name: segmentation}");
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (std::size_t i = 0; i < a.metrics.size(); ++i) EXPECT_NEAR(a.metrics[i].second, b.metrics[i].second, 1e-6);
}

TEST_F(Tasks, RetrievalCountsCaptionsPerImage) {
  context.pictures = true;
  const TaskResult result = run("{name: retrieval, captions_per_image: 1, topk: [6]}");
  EXPECT_EQ(result.metrics.at(0), (std::pair<std::string, double>("image_to_text_recall@6", 1.0)));
  EXPECT_EQ(result.pictures.retrieval.size(), 12U);
}

TEST_F(Tasks, SegmentationOfOneClassIsAllRightWhereItIs) {
  // One candidate per picture: every pixel gets it, half of them are background.
  const TaskResult result = run("{name: segmentation}");
  EXPECT_NEAR(result.metrics.at(0).second, 0.5, 1e-9);
  EXPECT_EQ(result.metrics.at(0).first, "image_miou");
}

TEST_F(Tasks, LinearProbeAndKnnTellBrightFromDark) {
  EXPECT_EQ(run("{name: linear_probe, l2: 0.0001}").metrics.at(0), (std::pair<std::string, double>("top1", 1.0)));
  EXPECT_EQ(run("{name: linear_probe, validation_share: 0.34}").metrics.back().first, "validation_top1");
  EXPECT_EQ(run("{name: knn, k: 1}").metrics.at(0), (std::pair<std::string, double>("top1", 1.0)));
}

TEST_F(Tasks, SamplesThatLackSomethingAreCountedAsSkipped) {
  source->change = [](std::int64_t index, Sample& sample) {
    if (index != 2) return;
    sample.label = -1;
    sample.mask.clear();
    sample.captions.clear();
  };
  EXPECT_EQ(run("{name: zero_shot}").skipped.at("no_label"), 1);
  EXPECT_EQ(run("{name: zero_shot}").samples, 5);
  EXPECT_EQ(run("{name: segmentation}").skipped.at("no_mask"), 1);
  EXPECT_EQ(run("{name: retrieval}").skipped.at("no_caption"), 1);
}

TEST_F(Tasks, HardNegativesAreCountedByKind) {
  source->change = [](std::int64_t index, Sample& sample) {
    sample.negatives = {{"swap_att", "zzz"}};
    if (index == 0) sample.negatives.push_back({"add_obj", sample.captions.front()});  // equal scores are wrong
  };
  const TaskResult result = run("{name: hard_negatives}");
  EXPECT_EQ(result.metrics.at(2), (std::pair<std::string, double>("add_obj_accuracy", 0.0)));
  EXPECT_EQ(result.metrics.at(3).first, "swap_att_accuracy");
}

TEST_F(Tasks, DataThatLacksWhatATaskNeedsIsNamed) {
  source->change = [](std::int64_t, Sample& sample) {
    sample.label = -1;
    sample.mask.clear();
    sample.captions.clear();
  };
  EXPECT_EQ(error_of("{name: zero_shot}"), "plain pictures: no sample has a class label");
  EXPECT_EQ(error_of("{name: segmentation}"), "segmentation: no sample of plain pictures has a mask");
  EXPECT_EQ(error_of("{name: retrieval}"), "retrieval: no sample of plain pictures has a caption");
  EXPECT_EQ(error_of("{name: hard_negatives}"), "hard_negatives: no sample of plain pictures has hard negatives");
  EXPECT_EQ(error_of("{name: zero_shot, classes: [one]}").find("plain pictures"), 0U);
}

TEST_F(Tasks, MissingClassNamesAreFoundBeforeAnythingIsComputed) {
  const auto check = [&](const std::string& yaml) -> std::string {
    try {
      check_tasks({task(yaml)}, context);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(check("{name: zero_shot}"), "no error");
  source->named = false;
  for (const std::string name : {"zero_shot", "segmentation"}) {
    EXPECT_EQ(check("{name: " + name + "}"),
              name + ": plain pictures has no class names: set " + name + ".classes to a list or a file");
    EXPECT_EQ(check("{name: " + name + ", classes: [dark, bright]}"), "no error");
  }
}

TEST_F(Tasks, LabelsAndMasksBeyondTheClassNamesAreErrors) {
  EXPECT_EQ(error_of("{name: zero_shot, classes: [one]}"),
            "zero_shot: plain pictures has a sample of class 1, but there are only 1 class names (0 to 0)");
  EXPECT_EQ(error_of("{name: segmentation, classes: [one]}"),
            "segmentation: the mask of sample sample0 of plain pictures holds class 2, but there are only 1 class "
            "names (0 to 0)");
}

TEST_F(Tasks, WithoutDataTheSettingIsNamed) {
  context.source = nullptr;
  EXPECT_EQ(error_of("{name: retrieval}"),
            "retrieval.source is not set, and there is no data of a run to fall back on: set it, say to {name: shapes, "
            "split: test}");
}

TEST_F(Tasks, BrokenWeightsAreSaidAloud) {
  for (const auto& [name, tensor] : model->state_dict()) {
    c10::AutoGradMode off(false);
    tensor.fill_(NAN);
  }
  EXPECT_EQ(
      error_of("{name: retrieval}"),
      "the model's embedding of the pictures sample0 to sample3 is not finite: the weights are broken or the training "
      "diverged; take an earlier checkpoint");
}

}  // namespace
}  // namespace tessera
