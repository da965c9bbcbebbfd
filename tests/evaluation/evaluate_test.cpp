#include <filesystem>
#include <fstream>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/foreign/open_clip.h"
#include "tests/evaluation/evaluate_fixture.h"
#include "tests/support/page_data.h"
#include "tests/support/test_data.h"
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/evaluation/embedder_view.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

TEST_F(Evaluate, WritesResultsAndASelfContainedReport) {
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "train: {name: shapes, size: 40}\n"
      "tasks: [zero_shot, retrieval, segmentation, hard_negatives, {name: linear_probe, l2: 0.01}, {name: knn, k: "
      "3}]\n");
  EXPECT_EQ(run(), 0);
  const auto json = results();
  ASSERT_EQ(json.at("tasks").size(), 6U);
  EXPECT_EQ(json.at("step"), 7);
  for (const auto& task : json.at("tasks")) EXPECT_EQ(task.at("samples"), 12) << task;
  EXPECT_TRUE(contains(printed, "image_to_text_recall@5"));
  const std::string html = io::read_file(options.out + "/report.html");
  expect_self_contained(html);
  const nlohmann::json page = page_data(html);
  ASSERT_EQ(page.at("results").size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    const nlohmann::json &shown = page.at("results").at(i), &task = json.at("tasks").at(i);
    for (const auto& [key, value] : task.items()) EXPECT_EQ(shown.at(key), value) << "the page and results.json spell a result alike: " << key;
    for (const auto& [metric, value] : task.at("metrics").items()) EXPECT_TRUE(task.at("rules").contains(metric)) << metric;
    EXPECT_TRUE(task.at("rule").get<std::string>().ends_with(".")) << task.at("task");
  }
  EXPECT_TRUE(contains(html, "ground truth"));
  EXPECT_TRUE(contains(html, "sparc"));
}

// The reference at a width is a model whose projections have only that many columns.
TEST_F(Evaluate, AModelWithNestedWidthsIsMeasuredAtEachLikeAModelOfThatWidth) {
  // Letters as tokens, so that no two texts are equal.
  file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char letter = 'a'; letter <= 'z'; ++letter) file.vocabulary += concat(letter, "\n##", letter, "\n");
  file.tokenizer.settings = config::parse_yaml("{context_length: 90}", "tokenizer.yaml");
  options.data = "{name: shapes, split: test, size: 60, captions: 1, objects: [1, 2], parts: false}";
  options.overrides = {"topk=[1, 2, 3, 4]"};
  const auto save = [&](int width) {
    const std::string projection = concat(", width: 32, layers: 1, heads: 2}, projection: {name: linear, embed_dim: ", width, "}}");
    save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8" + projection,
               "text: {encoder: {name: text_transformer, vocab_size: 200, context_length: 90" + projection);
  };
  const auto metrics_of = [&](const std::string& task) {
    options.task = task;
    EXPECT_EQ(run(), 0);
    return results().at("tasks").at(0).at("metrics").get<std::map<std::string, double>>();
  };
  save(16);
  const NamedTensors whole = file.weights;
  file.extra["nested_widths"] = "3 16 5";
  save_model_file(options.checkpoint, file);
  std::map<std::string, std::map<std::string, double>> nested;
  for (const char* task : {"retrieval", "zero_shot"}) nested[task] = metrics_of(task);
  file.extra.erase("nested_widths");
  for (const int width : {3, 5, 16}) {
    save(width);
    for (auto& [name, tensor] : file.weights) {
      const at::Tensor& of_whole = whole.at(name);
      tensor = tensor.sizes() == of_whole.sizes() ? of_whole : of_whole.narrow(-1, 0, width).clone();
    }
    save_model_file(options.checkpoint, file);
    for (auto& [task, metrics] : nested) {
      bool differs = width == 16;
      for (const auto& [metric, value] : metrics_of(task)) {
        const std::string name = width == 16 ? metric : concat("width_", width, "_", metric);
        if (!metrics.contains(name)) continue;
        EXPECT_NEAR(metrics.at(name), value, 1e-12) << name;
        differs |= metrics.at(name) != metrics.at(metric);
      }
      EXPECT_TRUE(differs) << task << " measures the same at width " << width;
    }
  }
  for (const char* metric : {"width_3_image_to_text_recall@1", "width_5_text_to_image_recall@4"}) EXPECT_TRUE(nested["retrieval"].contains(metric));
  for (const char* metric : {"width_3_top1", "width_5_top4"}) EXPECT_TRUE(nested["zero_shot"].contains(metric));
  EXPECT_FALSE(nested["retrieval"].contains("width_16_image_to_text_recall@1")) << "the whole width has its own names";
}

TEST_F(Evaluate, IsDeterministic) {
  options.task = "retrieval";
  options.data = "{name: shapes, split: test, size: 12}";
  options.json = true;
  run();
  auto first = nlohmann::json::parse(printed);
  run();
  EXPECT_EQ(first.at("tasks").at(0).at("metrics"), nlohmann::json::parse(printed).at("tasks").at(0).at("metrics"));
}

TEST_F(Evaluate, UsesTheValidationDataOfTheRunByDefault) {
  options.task = "zero_shot";
  options.json = true;
  run();
  EXPECT_EQ(nlohmann::json::parse(printed).at("tasks").at(0).at("samples"), 9);
}

TEST_F(Evaluate, ReportsMistakesInOneLine) {
  options.task = "zero_shot";
  options.overrides = {"templates=[a photo]"};
  EXPECT_TRUE(contains(error(), "tasks[0].templates: template 1, \"a photo\", has no {} where the class name goes"));
  options.overrides = {};
  options.data = "nowhere";
  EXPECT_EQ(error().find("--data nowhere: there is no such file or folder, and no source of this name"), 0U);
  options.data = "";
  options.checkpoint = "missing";
  EXPECT_EQ(error(), "checkpoint missing does not exist: give a model file, a checkpoint folder or a run folder");
  options.device = "tpu";
  options.checkpoint = folder_.string();
  EXPECT_EQ(error(), "--device tpu: expected auto, cpu, cuda or cuda:N");
}

TEST_F(Evaluate, AFileThatIsNoModelIsNotSaidToDescribeOne) {
  options.task = "zero_shot";
  options.reading.architecture = "ViT-B-32";
  for (const char* content :
       {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "<!DOCTYPE html>\n", ""}) {
    options.checkpoint = write("other.pt", content);
    EXPECT_FALSE(contains(error(), "already describes its model")) << error();
  }
}

TEST_F(Evaluate, EqualImagesOfAStreamCannotBeGrouped) {
  options.task = "retrieval";
  options.data = concat("{name: webdataset, path: ", shards("test", 6).second, "}");
  options.overrides = {"group_equal_images=true"};
  EXPECT_EQ(run(), 2);
  const std::string reason = results().at("failed").at(0).at("reason");
  EXPECT_TRUE(reason.starts_with("retrieval.group_equal_images: webdataset ")) << reason;
}

TEST_F(Evaluate, EveryTaskMeasuresAStreamLikeFiles) {
  const auto [test, test_stream] = shards("test", 14);
  const auto [train, train_stream] = shards("train", 40);
  const std::string tasks =
      "tasks: [zero_shot, retrieval, segmentation, hard_negatives, {name: linear_probe, l2: 0.01}, {name: knn, k: "
      "3}]\n";
  const auto measure = [&](const std::string& tested, const std::string& fitted) {
    write_suite(concat("source: {name: webdataset, path: ", tested, "}\ntrain: {name: webdataset, path: ", fitted,
                       "}\n", tasks));
    EXPECT_EQ(run(), 0);
    return results().at("tasks");
  };
  const nlohmann::json files = measure(test, train);
  const nlohmann::json streams = measure(test_stream, train_stream);
  ASSERT_EQ(streams.size(), 6U);
  for (std::size_t i = 0; i < streams.size(); ++i) EXPECT_EQ(streams[i].at("metrics"), files[i].at("metrics"));
  EXPECT_TRUE(contains(io::read_file(options.out + "/report.html"), "Text to image"));
}

TEST_F(Evaluate, FailingTaskKeepsTheResultsOfTheOthers) {
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "tasks: [retrieval, {name: zero_shot, classes: [square]}, segmentation]\n");
  EXPECT_EQ(run(), 2);
  const auto json = results();
  ASSERT_EQ(json.at("tasks").size(), 2U);
  EXPECT_EQ(json.at("tasks").at(1).at("task"), "segmentation");
  ASSERT_EQ(json.at("failed").size(), 1U);
  EXPECT_EQ(json.at("failed").at(0).at("task"), "zero_shot");
  const std::string reason = json.at("failed").at(0).at("reason");
  EXPECT_TRUE(contains(reason, "which is not among zero_shot.classes (1): list it there"));
  EXPECT_EQ(json.at("failed").at(0).at("place"), "tasks[1] (zero_shot)");
  EXPECT_EQ(json.at("failed").at(0).at("settings").at("classes"), nlohmann::json({"square"}));
  EXPECT_TRUE(contains(io::read_file(options.out + "/report.html"), "which is not among zero_shot.classes"));
  EXPECT_TRUE(contains(printed, "image_to_text_recall@5"));
}

TEST_F(Evaluate, ResultsAndReportRecordHowTheyWereMeasured) {
  write_suite("source: {name: shapes, split: test, size: 12}\ntasks: [{name: zero_shot, topk: [1]}]\n");
  options.command = "evaluate --checkpoint 'my run'";
  EXPECT_EQ(run(), 0);
  const auto json = results();
  EXPECT_EQ(json.at("command"), options.command);
  EXPECT_EQ(json.at("version"), version());
  EXPECT_EQ(json.at("commit"), commit());
  EXPECT_EQ(json.at("model_file"), options.checkpoint);
  EXPECT_EQ(json.at("source").at("size"), 12);
  for (const char* key : {"date", "device", "batch_size", "step", "checkpoint"}) EXPECT_TRUE(json.contains(key)) << key;
  const auto task = json.at("tasks").at(0);
  EXPECT_EQ(task.at("settings").at("topk"), nlohmann::json({1}));
  EXPECT_EQ(task.at("settings").at("max_samples"), -1) << "defaults are recorded too";
  EXPECT_EQ(task.at("prompts"), nlohmann::json({"a photo of a {}."}));
  EXPECT_EQ(task.at("classes").at(0), "circle");
  const std::string html = io::read_file(options.out + "/report.html");
  for (const std::string text : {"a photo of a {}.", "max_samples: -1", "evaluate --checkpoint", "circle"})
    EXPECT_TRUE(contains(page_data(html).dump(), text)) << text;
  EXPECT_TRUE(contains(html, version_line()));
}

TEST_F(Evaluate, TextsThatAreNotUtf8DoNotLoseTheResults) {
  options.task = "retrieval";
  options.command = "evaluate --out caf\xe9";
  options.json = true;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(results().at("command"), "evaluate --out caf\uFFFD");
  EXPECT_EQ(nlohmann::json::parse(printed), results());
}

TEST_F(Evaluate, SuiteMayBeAPlainList) {
  write_suite("- {name: zero_shot, topk: [1]}\n- retrieval\n");
  options.overrides = {"tasks.0.topk=[2]"};
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(results().at("tasks").size(), 2U);
  EXPECT_EQ(results().at("tasks").at(0).at("settings").at("topk"), nlohmann::json({2}));
}

TEST_F(Evaluate, DoesNotOverwriteEarlierResults) {
  options.task = "zero_shot";
  options.overwrite = false;
  EXPECT_EQ(run(), 0);
  const std::string first = io::read_file(options.out + "/results.json");
  EXPECT_EQ(error(), "--out " + options.out +
                         ": holds the results of an earlier evaluation: name another folder, or add --overwrite");
  EXPECT_EQ(io::read_file(options.out + "/results.json"), first);
  options.out.clear();
  for (const char* name : {"evaluation", "evaluation-2", "evaluation-3"}) {
    EXPECT_EQ(run(), 0);
    EXPECT_TRUE(fs::exists(folder_ / name / "results.json")) << name;
  }
  options.overwrite = true;
  EXPECT_EQ(run(), 0);
  EXPECT_FALSE(fs::exists(folder_ / "evaluation-4"));
}

TEST_F(Evaluate, WritesNothingIfNoTaskFitsItsData) {
  const auto [tar, stream] = shards("test", 4);
  options.task = "zero_shot";
  for (const std::string& data : {tar, stream}) {
    options.data = concat("{name: webdataset, path: ", data, ", label_keys: class.txt, index_cache: 'off'}");
    const std::string text = error();
    EXPECT_TRUE(contains(text, "label is looked for in class.txt (label_keys), and "));
    EXPECT_TRUE(
        contains(text, " class names are known (classes): name other data in its `source`, or leave the task out"));
  }
  EXPECT_FALSE(fs::exists(options.out));
}

TEST_F(Evaluate, MeasuresAModelWithoutATextTowerOnImageTasksOnly) {
  file.tokenizer = {};
  file.vocabulary.clear();
  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}",
             "text: null");
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "train: {name: shapes, size: 40}\n"
      "tasks: [{name: linear_probe, l2: 0.01}, {name: knn, k: 3}]\n");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(results().at("tasks").size(), 2U);
  for (const char* task : {"zero_shot", "retrieval", "segmentation", "hard_negatives"}) {
    write_suite(concat("source: {name: shapes, split: test, size: 12}\ntasks: [", task, "]\n"));
    EXPECT_EQ(error(), concat(task,
                              " compares images with texts, but this model has no text tower: linear_probe and "
                              "knn do not need one"));
  }
}

TEST_F(Evaluate, ChecksDataBeforeWeights) {
  options.checkpoint = "no/such/model.safetensors";
  options.task = "retrieval";
  options.data = "nowhere";
  EXPECT_EQ(error().find("--data nowhere: "), 0U) << error();
}

TEST_F(Evaluate, RejectsATextTowerWithoutATokenizer) {
  file.tokenizer = {};
  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}");
  options.task = "knn";
  EXPECT_EQ(error(), options.checkpoint +
                         ": has a text tower but no tokenizer: tessera-convert --settings RUN " + options.checkpoint +
                         " NEW.safetensors adds that of the run that the weights come from");
}

TEST_F(Evaluate, PublishedModelWithoutTokenizerFilesFailsOnlyAtTheFirstText) {
  const InferenceModel loaded = load_for_inference(test_data("foreign/open_clip_bert"), "cpu");
  EXPECT_EQ(loaded.model->encode_image(at::zeros({1, 3, 16, 16})).global.size(1), 24);
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer);
  EXPECT_TRUE(contains(error_of([&] { embedder.encode_texts({"a cat"}, {}); }),
                       "has a text tower, but neither tokenizer.json nor spiece.model"));
}

TEST_F(Evaluate, MeasuresAnOpenClipCheckpointLikeOurs) {
  const fs::path theirs = folder_ / "theirs";
  fs::create_directories(theirs);
  io::write_file((theirs / "open_clip_config.json").string(), R"({"model_cfg": {"embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}},
    "preprocess_cfg": {"size": 32}})");
  at::manual_seed(5);
  DualEncoder model(open_clip_model(io::read_file((theirs / "open_clip_config.json").string()), "theirs").model);
  const std::string weights = (theirs / "open_clip_model.safetensors").string();
  io::save_safetensors(weights, model.state_dict());
  save_model_file(options.checkpoint, from_open_clip(weights, model.settings()));
  write_suite("source: {name: shapes, split: test, size: 12}\ntasks: [zero_shot, retrieval]\n");
  EXPECT_EQ(run(), 0);
  const nlohmann::json ours = results();
  for (const std::string& checkpoint : {theirs.string(), weights}) {
    options.checkpoint = checkpoint;
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(results().at("model_file"), weights);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(results().at("tasks").at(i).at("metrics"), ours.at("tasks").at(i).at("metrics"));
  }
  fs::remove(theirs / "open_clip_config.json");
  EXPECT_EQ(error().find(weights + ": weights without our settings, and no open_clip_config.json beside them"), 0U);
  options.reading.architecture = "ViT-B-32";
  EXPECT_TRUE(contains(error(), "but the model's settings make it"));
  for (const std::string& described : {path("model.safetensors"), test_data("foreign/clip")}) {
    options.checkpoint = described;
    EXPECT_EQ(error(), "--architecture ViT-B-32: " + described + " already describes its model: leave the option out");
  }
}

TEST_F(Evaluate, AnotherImageSizeAndAMissingTemperatureAreReported) {
  write_suite("source: {name: shapes, split: test, size: 12}\ntasks: [zero_shot]\n");
  const auto said = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run(), 0);
    return testing::internal::GetCapturedStderr();
  };
  file.weights["logit_scale"] = at::tensor(2.0F);
  save_model_file(options.checkpoint, file);
  EXPECT_EQ(said().find("positions"), std::string::npos);
  options.reading.image_size = config::Size(64);
  const std::string larger = said();
  EXPECT_NE(larger.find("image positions: the file's 4 x 4 (images of 32 x 32 pixels) are resampled to 8 x 8 (64 x 64 pixels)"), std::string::npos) << larger;
  EXPECT_EQ(larger.find("logit_scale"), std::string::npos);
  file.weights.erase("logit_scale");
  save_model_file(options.checkpoint, file);
  EXPECT_NE(said().find("has no usable logit_scale: probabilities are computed with 100, CLIP's maximum"), std::string::npos);
}

class EvaluateSlots : public Evaluate {
 protected:
  EvaluateSlots() {
    const std::string sparo = "readout: {name: sparo, slots: 6, slot_width: 4, key_width: 8}, projection: none}";
    save_model(
        "image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2, "
        "final_norm: tokens}, " +
            sparo,
        "text: {encoder: {name: text_transformer, vocab_size: 200, context_length: 24, width: 32, layers: 1, heads: "
        "2}, " +
            sparo);
    write_suite(
        "source: {name: shapes, split: test, size: 12}\n"
        "train: {name: shapes, size: 40}\n"
        "tasks: [zero_shot, retrieval, hard_negatives, {name: knn, k: 3}, slot_mask, slots]\n");
  }
};

// The tolerance is 1/12 because rounding may break a tie differently for one of the 12 images.
TEST_F(EvaluateSlots, AllSlotsEqualThePlainEvaluation) {
  EXPECT_EQ(run(), 0);
  const nlohmann::json plain = results();
  options.slots = path("all.json");
  std::ofstream(options.slots) << "{\"slots\": [5, 0, 1, 2, 4, 3]}";
  EXPECT_EQ(run(), 0);
  const nlohmann::json through = results();
  for (std::size_t i = 0; i < 4; ++i)
    for (const auto& [name, value] : plain.at("tasks").at(i).at("metrics").items())
      EXPECT_NEAR(through.at("tasks").at(i).at("metrics").at(name), value, 1.0 / 12 + 1e-6) << name;
}

TEST_F(EvaluateSlots, ReportShowsWhatSlotsAttendTo) {
  EXPECT_EQ(run(), 0);
  std::set<std::string> tokens;
  const nlohmann::json shown = page_data(io::read_file(options.out + "/report.html")).at("results");
  for (const auto& result : shown)
    for (const auto& card : result.at("cards"))
      for (const auto& sheet : card.value("title", "") == "Slots" ? card.at("items") : nlohmann::json::array())
        for (const auto& token : sheet.at("images").at(1).at("tokens")) tokens.insert(token.at(0).get<std::string>());
  EXPECT_TRUE(tokens.contains(" circle") || tokens.contains("circle")) << "shows words, not token ids";
  EXPECT_TRUE(tokens.contains("")) << "special tokens";
}

TEST_F(EvaluateSlots, ChosenSlotsAreWrittenAndCanBeReused) {
  options.slots = "top:2";
  EXPECT_EQ(run(), 0);
  const nlohmann::json first = results();
  const auto list = nlohmann::json::parse(io::read_file(options.out + "/slots.json"));
  EXPECT_EQ(list.at("slots").size(), 2U);
  EXPECT_EQ(list.at("of"), 6);
  EXPECT_EQ(list.at("data"), "shapes validation, 9 samples") << "the run's validation data";
  EXPECT_EQ(first.at("slots").at("slots"), list.at("slots"));
  EXPECT_TRUE(contains(printed, "2 of 6, by zero-shot accuracy on shapes validation, 9 samples"));
  EXPECT_TRUE(contains(io::read_file(options.out + "/report.html"), "2 of 6, by zero-shot"));
  options.slots = path("kept.json");
  fs::rename(options.out + "/slots.json", options.slots);
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(results().at("tasks").size(), 6U);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(results().at("tasks").at(i).at("metrics"), first.at("tasks").at(i).at("metrics")) << i;
  EXPECT_FALSE(fs::exists(options.out + "/slots.json")) << "no slots were chosen";
}

TEST_F(EvaluateSlots, MaskIsWrittenAndCanBeReused) {
  options.slots = "";
  EXPECT_EQ(run(), 0);
  const double masked = results().at("tasks").at(4).at("metrics").at("accuracy");
  options.slots = path("mask.safetensors");
  fs::rename(options.out + "/slot_mask.safetensors", options.slots);
  EXPECT_EQ(run(), 0);
  EXPECT_DOUBLE_EQ(results().at("tasks").at(2).at("metrics").at("accuracy"), masked);
  EXPECT_EQ(results().at("slots").at("mask"), options.slots);
}

TEST_F(EvaluateSlots, WarnsAboutChoosingOnMeasuredSamples) {
  const auto warnings = [&](const std::string& slots) {
    options.slots = slots;
    ::testing::internal::CaptureStderr();
    run();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_TRUE(contains(warnings("{top: 2, source: {name: shapes, split: test, size: 12}}"),
                       "slots are chosen on the same samples that zero_shot measures"));
  EXPECT_TRUE(contains(warnings("{top: 2, source: {name: shapes, split: test, size: 13}}"),
                       "slots are chosen on samples of a test split"));
  EXPECT_FALSE(contains(warnings("top:2"), "slots are chosen"));
}

TEST_F(EvaluateSlots, ReportsMistakesInOneLine) {
  options.slots = "top:7";
  EXPECT_EQ(error(), "--slots top:7: this model has 6 slots");
  options.slots = "nowhere.json";
  EXPECT_EQ(error(), "--slots nowhere.json: there is no such file: give top:32, or the slots.json of an evaluation");
  options.slots = options.checkpoint;
  EXPECT_EQ(error(), options.checkpoint +
                         ": this is not a mask: slot_mask writes one, a tensor `mask` with one weight per slot");
  options.slots = "top:2";
  EXPECT_EQ(run(), 0);
  options.slots = path("kept.json");
  fs::rename(options.out + "/slots.json", options.slots);
  file.weights["visual.sparo.q_emb"] = file.weights.at("visual.sparo.q_emb").detach() + 1;
  save_model_file(options.checkpoint, file);
  EXPECT_TRUE(contains(error(), "its slots belong to another model"));
  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}");
  EXPECT_EQ(error(),
            "--slots: the read-out of this model's image tower outputs no slots: take a model whose towers both read out "
            "by slots, as sparo does");
}

class EvaluateTokens : public Evaluate {
 protected:
  EvaluateTokens() {
    save_model(
        "image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 16, layers: 1, heads: 2}, " + kHead,
        "text: {encoder: {name: text_transformer, vocab_size: 13, context_length: 24, width: 32, layers: 1, heads: "
        "2}, " +
            kHead);
    write_suite(
        "source: {name: shapes, split: test, size: 12, label: color}\n"
        "tasks: [zero_shot, retrieval, interpretability, {name: tokens, words: [circle]}, {name: retrieval, "
        "text_encoder_free: true}]\n");
  }
  const std::string kHead = "readout: token_projection, projection: none}";
};

TEST_F(EvaluateTokens, EveryTaskReadsTokens) {
  EXPECT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  ASSERT_EQ(tasks.size(), 5U);
  EXPECT_TRUE(tasks.at(1).at("metrics").contains("active_tokens_per_image"));
  EXPECT_EQ(tasks.at(2).at("metrics").at("tokens"), 8) << "all tokens except the special ones";
  EXPECT_EQ(tasks.at(3).at("metrics").at("active_tokens_per_image"),
            tasks.at(1).at("metrics").at("active_tokens_per_image"));
  EXPECT_EQ(tasks.at(4).at("data"), "shapes test, 12 samples (no text encoder)");
  const std::string html = io::read_file(options.out + "/report.html");
  EXPECT_TRUE(contains(html, "The most active tokens of each image"));
  EXPECT_TRUE(contains(html, R"("caption":"circle","heat")")) << "captions a heat map";
  EXPECT_EQ(nlohmann::json::parse(io::read_file(options.out + "/tokens.json")).size(), 6U);
}

TEST_F(EvaluateTokens, SparseRowsCompareLikeDenseOnes) {
  /// Wraps an embedder whose compact() makes embeddings sparse. The wrapper's compact() leaves them dense.
  class Whole final : public EmbedderView {
   public:
    using EmbedderView::EmbedderView;
    TowerFeatures compact(const TowerFeatures& features) const override { return features; }
  };
  const InferenceModel loaded = load_for_inference(options.checkpoint, "cpu");
  const DualEncoderEmbedder sparse(loaded.model, loaded.tokenizer);
  EXPECT_TRUE(sparse.compact(sparse.encode_texts({"red"}, {})).global.is_sparse());
  EvaluationContext context;
  context.source = sources().make({"shapes"}, "source");
  context.batch_size = 8;
  for (const char* task : {"{name: zero_shot, max_samples: 20}", "{name: retrieval, max_samples: 20}"}) {
    EXPECT_EQ(run_task(task_of(task), sparse, context).metrics, run_task(task_of(task), Whole(sparse), context).metrics) << task;
  }
}

TEST_F(EvaluateTokens, RejectsModelsWithoutTokensInOneLine) {
  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}");
  EXPECT_EQ(run(), 2);
  ASSERT_EQ(results().at("failed").size(), 2U);
  EXPECT_EQ(results().at("failed").at(1).at("reason"),
            "retrieval.text_encoder_free: this model's embeddings are not weights of vocabulary tokens: take one whose "
            "towers both read out by token_projection, with projection: none, as in configs/shapes/stair.yaml");
  EXPECT_EQ(results().at("tasks").at(2).at("task"), "interpretability") << "measured by the similarity to the texts of the tokens";
}

TEST_F(Evaluate, MeasuresGroupsOfWordsAndPatches) {
  file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n,\n";
  for (char letter = 'a'; letter <= 'z'; ++letter) file.vocabulary += concat(letter, "\n##", letter, "\n");
  file.tokenizer.settings = config::parse_yaml("{context_length: 160}", "tokenizer.yaml");
  save_model(
      "image: {encoder: {name: groupvit, image_size: 32, patch_size: 8, width: 16, depths: [1, 1, 1], heads: [2, 2, "
      "2], num_group_tokens: [8, 4, 0], num_output_groups: [8, 4]}, readout: {name: groups, output_dim: 16}, "
      "projection: none}",
      "text: {encoder: {name: text_group_encoder, vocab_size: 58, context_length: 160, width: 16, heads: 2, "
      "token_layers: 1, group_layers: 1, num_groups: 4}, readout: {name: groups, output_dim: 16}, projection: none}");
  write_suite(
      "source: {name: shapes, split: test, size: 12, label: color}\n"
      "tasks: [{name: segmentation, by: groups}, {name: token_group_iou, samples: 3}]\n");
  EXPECT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks.at(0).at("samples"), 12);
  EXPECT_EQ(tasks.at(1).at("samples"), 12);
  EXPECT_EQ(tasks.at(1).at("metrics").at("groups"), 4);
  EXPECT_GT(tasks.at(1).at("metrics").at("phrases_per_caption"), 1);
  EXPECT_TRUE(contains(printed, "chunks_iou"));
  EXPECT_TRUE(contains(io::read_file(options.out + "/report.html"), R"("title":"Groups")"));
  EXPECT_EQ(nlohmann::json::parse(io::read_file(options.out + "/token_groups.json")).size(), 3U);
  write_suite("{source: {name: shapes, split: test, size: 12, label: color}, tasks: [segmentation]}\n");
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(results().at("failed").at(0).at("reason"),
            "segmentation: this model's image tower outputs 4 groups, not 4 x 4 patches: take by: groups");
  write_suite("{source: {name: shapes, split: test, size: 12, label: color}, tasks: [{name: segmentation, by: groups}]}\n");

  save_model("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}}",
             "text: {encoder: {name: text_transformer, vocab_size: 58, context_length: 160, width: 32, layers: 1, "
             "heads: 2}}");
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(results().at("failed").at(0).at("reason"),
            "segmentation.by: this model's image tower outputs no groups in the space of its texts: take one that reads "
            "out by groups, as groupvit does, or by: patches");
  write_suite(
      "source: {name: shapes, split: test, size: 12, label: color}\n"
      "tasks: [{name: token_group_iou, by: k_means}]\n");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(results().at("tasks").at(0).at("metrics").at("captions"), 12);
}

TEST_F(Evaluate, ReportCountsParametersWithoutBuffers) {
  save_model("image: {encoder: {name: modified_resnet, layers: [1, 1, 1, 1], width: 2}, readout: gap}");
  options.task = "retrieval";
  EXPECT_EQ(run(), 0);
  std::int64_t count = 0;
  for (const at::Tensor& parameter : DualEncoder(file.model).parameters()) count += parameter.numel();
  EXPECT_TRUE(contains(io::read_file(options.out + "/report.html"), "\"" + with_thousands(count) + ": image tower "));
}

TEST_F(Evaluate, CountsTheObjectivesParametersWithoutItsBuffers) {
  file.weights["logit_scale"] = at::zeros({});
  file.weights["objective.objectives.superclip.head.weight"] = at::zeros({3, 4});
  file.weights["objective.objectives.superclip.document_count"] = at::zeros({50}, at::kLong);
  file.weights["objective.objectives.superclip.caption_count"] = at::zeros({}, at::kLong);
  file.weights["objective.objectives.region_contrast.margin"] = at::zeros({});
  file.weights["objective.objectives.dino.loss.center"] = at::zeros({1, 16});
  save_model_file(options.checkpoint, file);
  options.task = "retrieval";
  EXPECT_EQ(run(), 0);
  const std::string parameters = results().at("parameters");
  EXPECT_TRUE(parameters.ends_with("; 13 more of the objective")) << parameters;
}

}  // namespace
}  // namespace tessera
