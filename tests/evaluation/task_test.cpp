#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/candidates.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/letter_tokenizer.h"
#include "tests/evaluation/task_case.h"
#include <tessera/data/loading/loader.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

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

TEST_F(Tasks, SegmentationWithOneCandidateIsRightOnItsPixels) {
  // Each image has one candidate class, so every pixel is assigned to it. Half of the pixels are background.
  const TaskResult result = run("{name: segmentation}");
  EXPECT_NEAR(result.metrics.at(0).second, 0.5, 1e-9);
  EXPECT_EQ(result.metrics.at(0).first, "image_miou");
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

TEST_F(Tasks, ProbesMatchTheClassesOfBothDataByName) {
  const auto train = std::make_shared<PlainSource>();
  context.train_source = train;
  source->names = {"background", "bright", "dark"};
  source->change = [](std::int64_t, Sample& sample) { sample.label = sample.label == 0 ? 2 : 1; };
  for (const char* task : {"{name: linear_probe, l2: 0.0001}", "{name: knn, k: 1}"})
    EXPECT_EQ(run(task).metrics.at(0), (Metric("top1", 1.0))) << task;
  EXPECT_EQ(error_of("{name: segmentation_probe}"),
            "segmentation_probe: some classes have other numbers in the training data, plain pictures, than in the test data, plain "
            "pictures");
  train->names = {"dark", "background"};
  EXPECT_EQ(error_of("{name: knn, k: 1}"),
            "plain pictures has a sample of class 1, bright, but no class of plain pictures has this name; their classes are matched by "
            "name");
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

// Rows of a list that name the same image, beside the same data with one sample per image.
class TasksOnRows : public Tasks {
 protected:
  static constexpr std::int64_t kImages = 7, kCaptions = 3;

  TasksOnRows() {
    std::string table = "filepath,title\n", lines;
    for (std::int64_t c = 0; c < kCaptions; ++c)
      for (std::int64_t i = 0; i < kImages; ++i) {
        const std::string name = concat(i, ".png"),
                          caption = concat(static_cast<char>('a' + 3 * i + c), " dark ", static_cast<char>('b' + c));
        const std::string written = c == 0   ? name
                                    : c == 1 ? "./" + name
                                             : folder / name;  // three ways to name the same file
        table += concat(written, ",", caption, "\n");
        lines +=
            concat(R"({"image": ")", written, R"(", "caption": ")", caption, R"(", "negatives": ["zz )", c, "\"]}\n");
        io::write_file(folder / name, encoded_image(i));
      }
    io::write_file(folder / "rows.csv", table);
    io::write_file(folder / "rows.jsonl", lines);
    source->count = kImages;
    source->change = [](std::int64_t index, Sample& sample) {
      sample.image = {};
      sample.encoded = encoded_image(index);
      sample.captions.clear();
      for (std::int64_t c = 0; c < kCaptions; ++c)
        sample.captions.push_back(concat(static_cast<char>('a' + 3 * index + c), " dark ", static_cast<char>('b' + c)));
    };
  }
  /// Returns the file of an image that differs from those of other numbers.
  static std::string encoded_image(std::int64_t number) {
    Image image{16, 16, std::vector<std::uint8_t>(16 * 16 * 3)};
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(i * i * static_cast<std::size_t>(number + 3) / 7);
    return encode_png(image);
  }
  std::string task_on(const std::string& task, const std::string& data) const {
    return concat("{name: ", task, ", source: ", data, "}");
  }

  const TemporaryFolder folder;
  const std::string csv = concat("{name: csv, path: ", folder / "rows.csv", "}");
  const std::string json_lines =
      concat("{name: json_lines, path: ", folder / "rows.jsonl", ", images: ", folder.path(), "}");
};

TEST_F(TasksOnRows, RowsWithTheSameFileAreOneImage) {
  for (const char* task : {"retrieval", "k_precision"}) {
    const TaskResult grouped = run(concat("{name: ", task, "}"));
    EXPECT_EQ(grouped.samples, kImages);
    EXPECT_EQ(grouped.texts, kImages * kCaptions);
    for (const std::string& data : {csv, json_lines}) {
      const TaskResult rows = run(task_on(task, data));
      EXPECT_EQ(rows.metrics, grouped.metrics) << data;
      EXPECT_EQ(rows.samples, kImages);
      EXPECT_EQ(rows.texts, kImages * kCaptions);
      EXPECT_TRUE(rows.data.ends_with("21 samples")) << rows.data;
    }
  }
  EXPECT_EQ(run(task_on("query, texts: [a]", csv)).samples, kImages);
  EXPECT_EQ(run(task_on("retrieval, max_samples: 2", csv)).texts, 2 * kCaptions);
}

TEST_F(TasksOnRows, RowsWithDifferentLabelsAreSamplesOfClassification) {
  io::write_file(folder / "labels.csv",
                 "filepath,title,label\n0.png,a,dark\n./0.png,b,bright\n1.png,c,dark\n2.png,d,bright\n");
  const std::string data = concat("{name: csv, label_key: label, path: ", folder / "labels.csv", "}");
  testing::internal::CaptureStderr();
  EXPECT_EQ(check(task_on("zero_shot", data)), "no error");
  for (const std::string& task : {task_on("zero_shot", data), task_on("knn, k: 1, train: " + data, data),
                                  task_on("linear_probe, l2: 1, train: " + data, data)}) {
    const TaskResult result = run(task);
    EXPECT_EQ(result.samples, 4) << task;
    EXPECT_TRUE(result.skipped.empty()) << task;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("different labels"), std::string::npos);
  EXPECT_EQ(run(task_on("retrieval", data)).samples, 3) << "there, images compete";
}

TEST_F(TasksOnRows, ABadRowDoesNotLoseTheOtherRowsOfItsImage) {
  io::write_file(folder / "classes.txt", "dark\nbright\n");
  io::write_file(folder / "bad.csv", "filepath,title,label\n0.png,a,dark\n0.png,b,gray\n1.png,c,dark\n2.png,d,gray\n");
  const TaskResult result = run(task_on("retrieval", concat("{name: csv, label_key: label, path: ", folder / "bad.csv",
                                                            ", classes: ", folder / "classes.txt", "}")));
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(result.texts, 2);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"bad_label", 1}}));
  EXPECT_EQ(result.notes.at(0), "1 row is bad and left out; the images have other rows");
}

TEST_F(TasksOnRows, EqualBytesUnderOtherNamesAreCountedAndGroupedOnRequest) {
  const TaskResult grouped = run("{name: retrieval}");
  const auto one_per_caption = source->change;
  source->count = kImages * kCaptions;
  source->change = [one_per_caption](std::int64_t index, Sample& sample) {
    one_per_caption(index / kCaptions, sample);
    sample.captions = {sample.captions.at(static_cast<std::size_t>(index % kCaptions))};
  };
  const TaskResult apart = run("{name: retrieval}");
  EXPECT_EQ(apart.samples, kImages * kCaptions);
  EXPECT_EQ(apart.equal_images, kImages * (kCaptions - 1));
  const TaskResult together = run("{name: retrieval, group_equal_images: true}");
  EXPECT_EQ(together.metrics, grouped.metrics);
  EXPECT_EQ(together.samples, kImages);
  EXPECT_EQ(together.equal_images, 0);
}

TEST_F(TasksOnRows, HardNegativesBelongToTheCaptionOfTheirRow) {
  const TaskResult rows = run(task_on("hard_negatives", json_lines));
  EXPECT_EQ(rows.samples, kImages);
  EXPECT_EQ(rows.texts, 2 * kImages * kCaptions);
  const DualEncoderEmbedder embedder(model, tokenizer);
  const auto data = sources().make(task_of(json_lines), "");
  double right = 0;
  for (std::int64_t i = 0; i < data->size(); ++i) {
    EvaluationSample sample{.sample = indexed(*data).get(i)};
    prepare_image(sample, embedder.preprocessing());
    const at::Tensor scores =
        embedder.similarity(embedder.encode_images(sample.pixels.unsqueeze(0), {}),
                            embedder.encode_texts({sample.sample.captions[0], sample.sample.negatives[0].caption}, {}));
    right += scores[0][0].item<double>() > scores[0][1].item<double>() ? 1 : 0;
  }
  EXPECT_NEAR(metric(rows, "accuracy"), right / static_cast<double>(data->size()), 1e-12);
  ASSERT_FALSE(rows.outcomes.empty());
  expect_outcomes_give_metrics(rows);
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

TEST_F(Tasks, RejectMissingClassNamesBeforeMeasuring) {
  EXPECT_EQ(check("{name: zero_shot}"), "no error");
  source->names.clear();
  for (const std::string name : {"zero_shot", "segmentation"}) {
    EXPECT_EQ(check("{name: " + name + "}"),
              "plain pictures has no class names: set " + name +
                  ".classes to a list or a file, or `classes` of the data to a file with one name per line");
    EXPECT_EQ(check("{name: " + name + ", classes: [dark, bright, wall]}"), "no error");
  }
}

TEST_F(Tasks, RejectLabelsAndMasksBeyondTheClassNames) {
  EXPECT_EQ(error_of("{name: zero_shot, classes: [one]}"),
            "plain pictures has a sample of class 1, but there are only 1 class names (0 to 0): list them all in "
            "zero_shot.classes, or in `classes` of the data");
  EXPECT_EQ(error_of("{name: segmentation, classes: [one]}"),
            "segmentation.classes lists 1 class, but plain pictures has 3: list one for each, in the data's order");
  EXPECT_EQ(check("{name: zero_shot, classes: [one]}"), error_of("{name: zero_shot, classes: [one]}"));
  EXPECT_EQ(check("{name: segmentation, classes: [one]}"), error_of("{name: segmentation, classes: [one]}"));
}

TEST_F(Tasks, NameTheSampleOfAMaskValueWithoutAClass) {
  source->names.clear();
  const std::string yaml = "{name: segmentation, classes: [one]}";
  EXPECT_EQ(error_of(yaml),
            "the mask of sample sample0 of plain pictures holds class 2, but there are only 1 class names (0 to 0): list "
            "one for each value in segmentation.classes");
  EXPECT_EQ(check(yaml), error_of(yaml));
}

TEST_F(Tasks, BackgroundIsFoundByItsNameAtAnyPlace) {
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

TEST_F(Tasks, PixelsOfClassesWithoutAMeaningAreIgnored) {
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

TEST_F(Tasks, RenamedClassesKeepTheirMeaning) {
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

TEST_F(Tasks, ClassesInNoMaskAreNamed) {
  source->names.insert(source->names.end(), {"cat", "dog"});
  EXPECT_EQ(run("{name: segmentation}").notes.back(), "2 of 5 classes occur in no mask: cat and dog");
}

TEST_F(Tasks, SegmentationMatchesClassesInAnotherOrderByName) {
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

TEST_F(Tasks, SegmentationWithoutMasksOnlyColorsImages) {
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

TEST_F(Tasks, OneWindowEqualsTheWholeImage) {
  const auto whole = run("{name: segmentation}").metrics;
  EXPECT_EQ(run("{name: segmentation, windows: {short_side: 16}}").metrics, whole);
  EXPECT_EQ(run("{name: segmentation, windows: {short_side: 0, size: 16, stride: 5}}").metrics, whole);
  context.images = true;
  const TaskResult enlarged = run("{name: segmentation, windows: {short_side: 40}}");
  EXPECT_EQ(sheets_of(enlarged, "Overlays").size(), 6U);
  EXPECT_EQ(sheets_of(enlarged, "Overlays").at(0).at("images")[0].at("src"), sheets_of(run("{name: segmentation}"), "Overlays").at(0).at("images")[0].at("src"))
      << "images keep their size";
}

TEST_F(Tasks, EqualNamesOfAClassCountOnce) {
  const TaskResult one = run("{name: segmentation, candidates: all}");
  const TaskResult more = run("{name: segmentation, candidates: all, classes: ['dark, dark', 'Light: bright', background]}");
  EXPECT_EQ(more.metrics, one.metrics);
  EXPECT_EQ(more.classes, (std::vector<std::string>{"dark", "Light", "background"}));
  EXPECT_EQ(error_of("{name: segmentation, classes: ['a, , b', c, d]}"),
            "segmentation.classes: class 0, \"a, , b\", has an empty name: expected NAME, NAME, ... or CLASS: NAME, NAME, ...");
}

TEST_F(Tasks, PixelsBelowTheThresholdAreBackground) {
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

TEST_F(Tasks, PlainLastBlockChangesNothing) {
  const auto plain = run("{name: segmentation}").metrics;
  EXPECT_EQ(run("{name: segmentation, last_block: plain}").metrics, plain);
  for (const std::string kind : {"maskclip", "sclip", "clearclip", "naclip"})
    EXPECT_EQ(run("{name: segmentation, last_block: " + kind + "}").samples, 6) << kind;
  EXPECT_EQ(error_of("{name: segmentation, last_block: sclip, by: groups}")
                .find("last_block: changes the patches, but `by` is groups") != std::string::npos,
            true);
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

TEST_F(Tasks, UseTheClassesOfTheTaskIfLabelsAreNames) {
  const auto by_number = run("{name: zero_shot}").metrics;
  source->names.clear();
  source->change = [](std::int64_t index, Sample& sample) {
    sample.label = -1;
    sample.class_name = index % 2 == 0 ? "dark" : "bright";
  };
  EXPECT_EQ(check("{name: zero_shot, classes: [dark, bright]}"), "no error");
  EXPECT_EQ(run("{name: zero_shot, classes: [dark, bright]}").metrics, by_number);
  EXPECT_EQ(check("{name: zero_shot, classes: [dark, white]}"),
            "plain pictures has a sample of class \"bright\", which is not among zero_shot.classes (2): list it there");
}

TEST_F(Tasks, MatchTheClassesOfTheTaskByName) {
  const auto own = run("{name: zero_shot}").metrics;
  EXPECT_EQ(run("{name: zero_shot, classes: [bright, dark]}").metrics, own);
  EXPECT_EQ(run("{name: zero_shot, classes: [white, black]}").samples, 6) << "other words are taken in the order of the source";
  EXPECT_EQ(check("{name: zero_shot, classes: [bright]}"),
            "plain pictures has a sample of class \"dark\", which is not among zero_shot.classes (1): list it there");
}

TEST_F(Tasks, SayWhichClassGotWhichName) {
  source->names = {"dark", "bright"};
  source->background = -1;
  EXPECT_TRUE(run("{name: zero_shot}").notes.at(0).starts_with("top5 is 100% for any model")) << "no name was replaced";
  const TaskResult in_order = run("{name: zero_shot, topk: [1], classes: [a Dark one, the bright picture]}");
  EXPECT_EQ(in_order.notes,
            (std::vector<std::string>{
                "names belong to classes by their position: dark -> a Dark one, bright -> the bright picture"}));
  const TaskResult words = run("{name: zero_shot, topk: [1], classes: [the bright picture, a Dark one]}");
  EXPECT_EQ(words.notes, (std::vector<std::string>{
                             "classes are matched by their words: dark -> a Dark one, bright -> the bright picture"}));
  EXPECT_EQ(words.metrics, in_order.metrics);
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [white, black]}").notes,
            (std::vector<std::string>{"names belong to classes by their position: dark -> white, bright -> black"}));
  EXPECT_EQ(words.chance, (std::map<std::string, double>{{"top1", 0.5}, {"mean_per_class", 0.5}}));
}

TEST_F(Tasks, CaseAndPunctuationOfClassNamesDoNotMatter) {
  source->names = {"sea_shore", "dog"};
  source->background = -1;
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [Dog, cat, sea shore]}").notes,
            (std::vector<std::string>{"classes are matched by their names: sea_shore -> sea shore, dog -> Dog"}));
}

TEST_F(Tasks, NamesWithinOtherNamesAreNotConfused) {
  source->names = {"dog", "hot dog"};
  source->background = -1;
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [a hot dog, a dog]}").notes,
            (std::vector<std::string>{"classes are matched by their words: dog -> a dog, hot dog -> a hot dog"}));
  source->names = {"fire", "no fire"};
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [smoke and fire, without fire]}").notes,
            (std::vector<std::string>{
                "names belong to classes by their position: fire -> smoke and fire, no fire -> without fire"}))
      << "no name contains \"no fire\"";
}

TEST_F(Tasks, AFallBackToPositionsIsAWarning) {
  source->names = {"dark", "bright"};
  source->background = -1;
  const TaskResult guessed = run("{name: zero_shot, topk: [1], classes: [white, black]}");
  EXPECT_EQ(guessed.warnings, guessed.notes);
  EXPECT_TRUE(run("{name: zero_shot, topk: [1], classes: [a Dark one, the bright picture]}").warnings.empty());
  EXPECT_TRUE(run("{name: zero_shot, topk: [1], classes: [bright, dark]}").warnings.empty());
}

TEST(MatchNames, ClassesOfTheSameNameStayApart) {
  using Places = std::vector<std::int64_t>;
  const std::vector<std::string> names = {"cat", "box", "box", "dog"};
  EXPECT_FALSE(match_names(names, names).by_name);
  EXPECT_EQ(match_names(names, names).note, "");
  EXPECT_EQ(match_names({"dog", "box", "cat", "box"}, names).place, (Places{2, 1, 3, 0}));
  const NamedClasses renamed = match_names({"cat", "box", "carton", "dog"}, names);
  EXPECT_FALSE(renamed.by_name) << "the second box has the name carton";
  EXPECT_TRUE(renamed.guessed);
  EXPECT_EQ(match_names({"box", "cat", "dog"}, names).place, (Places{1, 0, 0, 2})) << "the task names both classes box";
}

TEST(MatchNames, WordsMatchTheNamesThatAreLeft) {
  using Places = std::vector<std::int64_t>;
  const std::vector<std::string> names = {"cat", "dog", "bird"};
  EXPECT_EQ(match_names({"a photo of a dog", "cat", "a bird"}, names).place, (Places{1, 0, 2}));
  const NamedClasses moved = match_names({"cat", "a bird", "a dog"}, names);
  EXPECT_EQ(moved.place, (Places{0, 2, 1})) << "not by position, although cat has its own";
  EXPECT_EQ(moved.note, "classes are matched by their names and words: cat -> cat, dog -> a dog, bird -> a bird");
  EXPECT_EQ(match_names({"hot dog", "house", "cat", "tree"}, names).place, (Places{2, -1, -1}))
      << "a longer list may lack a class";
}

TEST_F(Tasks, ProbesSayWhichClassesTheyCompareByNumber) {
  auto train = std::make_shared<PlainSource>();
  train->names = {"cat", "dog", "background"};
  context.train_source = train;
  EXPECT_EQ(run("{name: knn, k: 1}").notes.at(0),
            "test and training data: names belong to classes by their position: dark -> cat, bright -> dog, background "
            "-> background");
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
