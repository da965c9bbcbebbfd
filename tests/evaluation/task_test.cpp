#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/plain_data.h"

namespace tessera {
namespace {

TEST_F(Tasks, ZeroShotIgnoresTheBackground) {
  context.images = true;
  const TaskResult result = run("{name: zero_shot, topk: [1, 2]}");
  EXPECT_EQ(result.samples, 6);
  EXPECT_EQ(result.classes, (std::vector<std::string>{"dark", "bright"}));
  EXPECT_EQ(card_of(result, "Confusion").at("names").size(), 2U);
  EXPECT_EQ(result.metrics.at(1), (Metric("top2", 1.0)));
  EXPECT_EQ(sheets_of(result, "Examples").size(), 6U);
}

TEST_F(Tasks, EmbedderRestoresTheModeOfTheModel) {
  for (const bool training : {true, false}) {
    model->train(training);
    {
      const DualEncoderEmbedder embedder(model, tokenizer);
      EXPECT_FALSE(model->is_training());
    }
    EXPECT_EQ(model->is_training(), training);
  }
}

TEST_F(Tasks, EmbedBatchesOfTextsLikeSingleTexts) {
  const std::vector<std::string> texts = {"dark", "bright", "a picture", "a b c", "z"};
  const at::Tensor alone = DualEncoderEmbedder(model, tokenizer, 1).encode_texts(texts, {}).global;
  const at::Tensor together = DualEncoderEmbedder(model, tokenizer, 3).encode_texts(texts, {}).global;
  EXPECT_TRUE(at::allclose(alone, together, 1e-5, 1e-6));
  EXPECT_EQ(DualEncoderEmbedder(model, tokenizer).encode_texts({}, {}).global.sizes(), alone.slice(0, 0, 0).sizes());
}

TEST_F(Tasks, CutTextsAreCountedOnce) {
  const std::string longest(40, 'a');
  const DualEncoderEmbedder embedder(model, tokenizer);
  embedder.encode_texts({longest, "b", longest}, {});
  embedder.encode_texts({longest}, {});
  testing::internal::CaptureStderr();
  embedder.tell_of_cut_texts();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(said, "1 of 2 texts are longer than the tokenizer's context")) << said;
}

TEST_F(Tasks, ShowTokensAsTheTextThatTheyAdd) {
  const DualEncoderEmbedder embedder(model, tokenizer);
  EXPECT_EQ(embedder.token_texts({1, 3, 4, 28, 5, 2}), (std::vector<std::string>{"", "a", "b", " z", "c", ""}));
  EXPECT_EQ(DualEncoderEmbedder(model, nullptr).token_texts({7}), (std::vector<std::string>{" #7"}));
}

/// Embeds images by their brightness and texts by the words "bright" and "dark". It has no model.
class BrightnessEmbedder final : public test::FixedEmbedder {
 public:
  BrightnessEmbedder() : FixedEmbedder(16, 2) {}
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    const at::Tensor& pixels = images.pixels;
    TowerFeatures out;
    out.global = pixels.to(at::kFloat).mean({1, 2, 3}).unsqueeze(1).div(255);  // [B, 1]
    const at::Tensor bright = out.global.gt(0.5);
    if (needs.dense)
      out.dense = at::cat({bright, bright.logical_not()}, 1).to(at::kFloat).unsqueeze(1).expand({-1, 4, 2});
    return out;
  }
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds&) const override {
    std::vector<float> rows;
    for (const std::string& text : texts) {
      rows.push_back(text.find("bright") != std::string::npos ? 1 : 0);
      rows.push_back(text.find("dark") != std::string::npos ? 1 : 0);
    }
    TowerFeatures out;
    out.global = at::tensor(rows).view({-1, 2});
    return out;
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override {
    TowerFeatures out;
    out.global = prompts.global.view({-1, per_class, 2}).amax(1);
    return out;
  }
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override {
    return at::cat({images.global, 1 - images.global}, 1).matmul(texts.global.t());
  }
};

TEST_F(Tasks, UseTheSimilarityOfTheEmbedder) {
  source->change = [](std::int64_t, Sample& sample) {
    sample.captions.pop_back();
    sample.negatives = {{"swap_att", sample.label == 0 ? "bright" : "dark"}};
  };
  const BrightnessEmbedder embedder;
  const auto first = [&](const std::string& yaml) { return run_task(task_of(yaml), embedder, context).metrics.at(0); };
  EXPECT_EQ(first("{name: zero_shot, topk: [1]}"), Metric("top1", 1.0));
  EXPECT_EQ(first("{name: zero_shot, topk: [1], templates: [\"a {}\", \"the {} {}\"]}"), Metric("top1", 1.0));
  EXPECT_EQ(first("{name: hard_negatives}"), Metric("accuracy", 1.0));
  EXPECT_EQ(first("{name: segmentation, candidates: all}"), Metric("image_miou", 0.5));  // half of the image is background
  // There are two different samples, each with three copies. Among equal captions, the first one ranks first, so only the first copy of an
  // image retrieves its own caption at rank 1.
  EXPECT_EQ(first("{name: retrieval, topk: [1]}"), Metric("image_to_text_recall@1", 2.0 / 6));
  EXPECT_EQ(first("{name: retrieval, topk: [3]}"), Metric("image_to_text_recall@3", 1.0));
}

TEST_F(Tasks, DoNotDependOnTheBatchSize) {
  const TaskResult a = run("{name: segmentation}");
  context.batch_size = 1;
  const TaskResult b = run("{name: segmentation}");
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (std::size_t i = 0; i < a.metrics.size(); ++i) EXPECT_NEAR(a.metrics[i].second, b.metrics[i].second, 1e-6);
}

TEST_F(Tasks, RetrievalCountsCaptionsPerImage) {
  const TaskResult result = run("{name: retrieval, captions_per_image: 1, topk: [6]}");
  EXPECT_EQ(result.metrics.at(0), (Metric("image_to_text_recall@6", 1.0)));
}

// The sheets must show the nearest of all images, although the task sees each image only once and must decide at that time whether to keep
// it.
TEST_F(Tasks, RetrievalSheetsShowTheNearestOfAllImages) {
  source->count = 11;
  source->change = [](std::int64_t index, Sample& sample) {
    std::fill(sample.image.pixels.begin(), sample.image.pixels.end(), static_cast<std::uint8_t>(20 * index));
    sample.captions = {std::string(1, static_cast<char>('a' + index))};
  };
  context.images = true;
  const TaskResult result = run("{name: retrieval, prompt_prefix: \"x \"}");
  const DualEncoderEmbedder embedder(model, tokenizer);
  std::vector<at::Tensor> pixels;
  for (std::int64_t i = 0; i < source->count; ++i) pixels.push_back(at::full({3, 16, 16}, 20 * i, at::kByte));
  const TowerFeatures images = embedder.encode_images(at::stack(pixels), {});
  std::vector<std::string> queries;
  std::vector<std::int64_t> ranks;
  for (const auto& sheet : sheets_of(result, "Text to image")) {
    const std::string query = sheet.at("quote"), tag = sheet.at("tag").at("text");
    const nlohmann::json& shown = sheet.at("images");
    queries.push_back(query);
    ranks.push_back(tag == "found first" ? 1 : std::stoll(tag.substr(tag.rfind(' '))));
    const at::Tensor order = std::get<1>(
        embedder.similarity(images, embedder.encode_texts({"x " + query}, {})).squeeze(1).sort(0, true));
    ASSERT_EQ(shown.size(), 6U) << "the right image and five results";
    for (std::int64_t i = 0; i < 5; ++i) {
      const auto image = order[i].item<std::int64_t>();
      const nlohmann::json& item = shown[static_cast<std::size_t>(1 + i)];
      EXPECT_EQ(item.at("src"), gray_source(static_cast<int>(20 * image)));
      EXPECT_EQ(item.at("box"), query.front() - 'a' == image ? "right" : "wrong");
    }
    EXPECT_EQ(shown[0].at("src"), gray_source(20 * (query.front() - 'a')));
  }
  EXPECT_TRUE(std::is_sorted(ranks.rbegin(), ranks.rend())) << "failures come first";
  std::sort(queries.begin(), queries.end());
  EXPECT_EQ(queries, (std::vector<std::string>{"a", "b", "c", "d"})) << "the queries are those of the first batch";
  EXPECT_EQ(sheets_of(result, "Text to image").size(), 4U);
  EXPECT_EQ(sheets_of(result, "Image to text").size(), 6U);
}

TEST_F(Tasks, ShowTheMostConfidentMistakesFirst) {
  source->count = 60;
  source->change = [](std::int64_t index, Sample& sample) {
    std::fill(sample.image.pixels.begin(), sample.image.pixels.end(), static_cast<std::uint8_t>(4 * index));
  };
  context.images = true;
  const TaskResult result = run("{name: zero_shot, topk: [1]}");
  const auto wrong = std::llround((1 - result.metrics.front().second) * 60);
  ASSERT_GT(wrong, 0);
  const nlohmann::json mistakes = sheets_of(result, "Mistakes");
  EXPECT_EQ(std::ssize(mistakes), std::min<std::int64_t>(wrong, 12));
  std::vector<double> margins;
  for (const auto& example : mistakes) {
    const nlohmann::json& bars = example.at("bars");
    ASSERT_EQ(bars.size(), 2U);
    EXPECT_FALSE(example.at("right").get<bool>());
    EXPECT_FALSE(bars[0][2].get<bool>());
    EXPECT_TRUE(bars[1][2].get<bool>());
    EXPECT_EQ(bars[1][0], example.at("truth"));
    margins.push_back(std::log(bars[0][1].get<double>()) - std::log(bars[1][1].get<double>()));
  }
  for (std::size_t i = 1; i < margins.size(); ++i) EXPECT_LE(margins[i], margins[i - 1] + 1e-6) << i;
}

TEST_F(Tasks, ExamplesAreSpreadOverTheDataAndReplaceSkippedOnes) {
  source->count = 36;
  source->change = [](std::int64_t index, Sample& sample) {
    std::fill(sample.image.pixels.begin(), sample.image.pixels.end(), static_cast<std::uint8_t>(index));
    if (index == 3 || index == 4) sample.label = -1;
  };
  context.images = true;
  std::vector<int> shown;
  for (const auto& example : sheets_of(run("{name: zero_shot}"), "Examples"))
    shown.push_back(std::stoi(example.at("images")[0].at("name").get<std::string>().substr(6)));  // "sample5"
  EXPECT_EQ(shown, (std::vector<int>{0, 5, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33}));
}

TEST_F(Tasks, LinearProbeAndKnnDistinguishBrightFromDark) {
  EXPECT_EQ(run("{name: linear_probe, l2: 0.0001}").metrics.at(0), (Metric("top1", 1.0)));
  EXPECT_EQ(run("{name: linear_probe, validation_share: 0.34}").metrics.back().first, "validation_top1");
  const auto adamw = run("{name: linear_probe, solver: adamw, validation_share: 0.34, learning_rates: [0.1], epochs: 200}").metrics;
  EXPECT_EQ(adamw.at(0), (Metric("top1", 1.0)));
  EXPECT_EQ(adamw.at(3), (Metric("lr", 0.1)));
  EXPECT_EQ(adamw.back().first, "validation_top1");
  EXPECT_EQ(run("{name: knn, k: 1}").metrics.at(0), (Metric("top1", 1.0)));
}

TEST_F(Tasks, CountSamplesThatLackSomethingAsSkipped) {
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

TEST_F(Tasks, MeasuredAndSkippedSamplesAddUpToTheData) {
  source->count = 9;
  source->change = [](std::int64_t index, Sample& sample) {
    sample.negatives = {{"swap_att", "zzz"}};
    if (index == 1) sample.captions.clear();
    if (index == 2) sample.label = -1;
    if (index == 3) sample.label = 2;  // class 2 is the background
    if (index == 4) sample.mask.clear();
    if (index == 5) throw SampleError("truncated", "sample 5: cut off");
  };
  const auto counts = [&](const std::string& yaml) {
    const TaskResult result = run(yaml);
    EXPECT_EQ(result.samples + result.skipped_total(), source->count) << yaml;
    return result.samples;
  };
  EXPECT_EQ(counts("{name: retrieval}"), 7);
  EXPECT_EQ(counts("{name: zero_shot}"), 6);
  EXPECT_EQ(counts("{name: interpretability}"), 6);
  EXPECT_EQ(counts("{name: segmentation}"), 7);
  EXPECT_EQ(counts("{name: hard_negatives}"), 7);
  EXPECT_EQ(counts("{name: knn, k: 1}"), 7);
  EXPECT_EQ(counts("{name: tokens}"), 8);
}

TEST_F(Tasks, RetrievalIgnoresImagesWithoutACaption) {
  source->count = 3;
  source->change = [](std::int64_t index, Sample& sample) {
    sample.captions.resize(1);
    // As a candidate, image 0 would rank above its copy, image 2, because of its lower index. Without a caption, it is no candidate.
    if (index == 0) sample.captions.clear();
  };
  const TaskResult result = run_task(task_of("{name: retrieval, topk: [1]}"), BrightnessEmbedder(), context);
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(result.metrics.at(1), (Metric("text_to_image_recall@1", 1.0)));
}

TEST_F(Tasks, CountHardNegativesByKind) {
  source->change = [](std::int64_t index, Sample& sample) {
    sample.negatives = {{"swap_att", "zzz"}};
    if (index == 0) sample.negatives.push_back({"add_obj", sample.captions.front()});  // equals the caption: the tie counts as wrong
  };
  const TaskResult result = run("{name: hard_negatives}");
  EXPECT_EQ(result.metrics.at(2), (Metric("add_obj_accuracy", 0.0)));
  EXPECT_EQ(result.metrics.at(3).first, "swap_att_accuracy");
}

TEST_F(Tasks, RejectDataThatLackWhatATaskNeeds) {
  source->change = [](std::int64_t, Sample& sample) {
    sample.label = -1;
    sample.mask.clear();
    sample.captions.clear();
  };
  EXPECT_EQ(error_of("{name: zero_shot}"), "plain pictures: no sample has a class label");
  EXPECT_EQ(error_of("{name: segmentation}"), "plain pictures: no sample has a mask");
  EXPECT_EQ(error_of("{name: retrieval}"), "plain pictures: no sample has a caption");
  EXPECT_EQ(error_of("{name: hard_negatives}"), "plain pictures: no sample has hard negatives");
  EXPECT_EQ(error_of("{name: zero_shot, classes: [one]}").find("plain pictures"), 0U);
}

TEST_F(Tasks, CheckSomeSamplesBeforeMeasuring) {
  source->change = [](std::int64_t, Sample& sample) {
    sample.label = -1;
    sample.mask.clear();
    sample.captions.clear();
  };
  const auto lacks = [](const std::string& what, const std::string& data) {
    return "no sample of plain pictures has " + what + ": name other data in its `" + data + "`, or leave the task out";
  };
  EXPECT_EQ(check("{name: zero_shot}"), lacks("a class label", "source"));
  EXPECT_EQ(check("{name: interpretability}"), lacks("a class label", "source"));
  EXPECT_EQ(check("{name: linear_probe}"), lacks("a class label", "train"));
  EXPECT_EQ(check("{name: knn}"), lacks("a class label", "train"));
  EXPECT_EQ(check("{name: segmentation}"), lacks("a mask", "source"));
  EXPECT_EQ(check("{name: retrieval}"), lacks("a caption", "source"));
  EXPECT_EQ(check("{name: slots}"), lacks("a caption", "source"));
  EXPECT_EQ(check("{name: hard_negatives}"), lacks("hard negatives", "source"));
  EXPECT_EQ(check("{name: slot_mask}"), lacks("hard negatives", "train"));
  EXPECT_EQ(check("{name: token_group_iou}"), lacks("a caption with annotated phrases", "source"));
  EXPECT_EQ(check("{name: tokens}"), "no error") << "captions are not needed";
  const auto labeled = std::make_shared<PlainSource>();
  context.train_source = labeled;
  EXPECT_EQ(check("{name: knn}"), lacks("a class label", "source"));
}

TEST_F(Tasks, CheckManySamplesBeforeReportingThatDataLackSomething) {
  source->count = 100'000;
  std::int64_t looked = 0;
  source->change = [&](std::int64_t index, Sample& sample) {
    ++looked;
    if (index < 97'000) sample.mask.clear();
  };
  EXPECT_EQ(check("{name: retrieval}"), "no error");
  EXPECT_EQ(looked, 8);
  EXPECT_EQ(check("{name: segmentation}"), "no error");
  EXPECT_EQ(check("{name: segmentation, max_samples: 96000}"),
            "none of 256 samples of plain pictures has a mask: name other data in its `source`, or leave the task out");
}

TEST_F(Tasks, CheckIgnoresUnreadableSamples) {
  source->change = [](std::int64_t, Sample&) { throw SampleError("no_image", "gone"); };
  EXPECT_EQ(check("{name: segmentation}"), "no error") << "the task itself counts them";
}

TEST(ResolveTasks, NamesTheDataOfASettingThatOnlyDataHave) {
  EXPECT_EQ(tessera::error_of([] { resolve_tasks({task_of("{name: segmentation, background_class: 0}")}, "tasks"); }),
            "task.yaml:1: tasks[0].background_class: unknown key: background_class is a setting of the data "
            "(webdataset, csv, json_lines, parquet and "
            "segmentation_folder): set it where the data are named, as in --data '{name: webdataset, path: ..., background_class: "
            "...}' or source: "
            "{name: webdataset, path: ..., background_class: ...}");
  EXPECT_TRUE(contains(
      tessera::error_of([] { resolve_tasks({task_of("{name: segmentation, backgroundthreshold: 0}")}, "tasks"); }),
      "did you mean background_threshold?"));
}

TEST_F(Tasks, ResultsRecordTheSettings) {
  const TaskResult result = run("{name: zero_shot, templates: [\"a {} picture\"]}");
  EXPECT_EQ(result.classes, (std::vector<std::string>{"dark", "bright"}));
  EXPECT_EQ(result.prompts, (std::vector<std::string>{"a {} picture"}));
  EXPECT_NE(result.settings.find("templates"), nullptr);
}

TEST_F(Tasks, NameTheSettingIfThereAreNoData) {
  context.source = nullptr;
  EXPECT_EQ(error_of("{name: retrieval}"),
            "retrieval.source is not set, and there is no data of a run to fall back on: set it, for example to {name: shapes, "
            "split: test}");
}

TEST_F(Tasks, ReportBrokenWeights) {
  for (const auto& [name, tensor] : model->state_dict()) {
    c10::AutoGradMode off(false);
    tensor.fill_(NAN);
  }
  EXPECT_EQ(
      error_of("{name: retrieval}"),
      "the model's embedding of the image sample0 is not finite: the weights are broken or the training diverged; "
      "take an earlier checkpoint");
}

}  // namespace
}  // namespace tessera
