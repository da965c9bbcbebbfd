// Compares the results of tasks that use a text-conditioned pool with a direct computation over all samples at once.
#include <cmath>

#include "src/data/image/encode.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/checkpoint_pool.h"
#include "src/evaluation/embedder_views.h"
#include "src/evaluation/metrics/retrieval.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/metrics/zero_shot.h"
#include "tests/evaluation/evaluate_fixture.h"
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

constexpr const char* kShapes = "{name: shapes, split: test, size: 10, label: color}";

/// A small model whose file contains the text-conditioned pooling layer of its objective.
class Conditioned : public Evaluate {
 protected:
  Conditioned() {
    save_model(
        "image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 32, layers: 1, heads: 2}, "
        "projection: {name: linear, embed_dim: 24}}",
        "text: {encoder: {name: text_transformer, vocab_size: 200, context_length: 24, width: 32, layers: 1, heads: "
        "2}, "
        "projection: {name: linear, embed_dim: 24}}");
    for (const char* word :
         {"green",    "yellow", "purple", "orange", "white",   "gray",  "black", "cyan",  "pink", "brown",
          "triangle", "star",   "cross",  "ring",   "diamond", "photo", "above", "below", "left", "right",
          // Unknown words would give classes equal texts, between which only rounding decides.
          "heart",    "hexagon", "moon",  "background"})
      file.vocabulary += concat(word, "\n");
    add_pool("objective.pool.", 4);
    file.extra["config"] = "objective: {name: flair, heads: 4, zero_token: true}\n";
    save_model_file(options.checkpoint, file);
  }

  void add_pool(const std::string& prefix, std::int64_t heads, std::int64_t width = 24) {
    at::manual_seed(8);
    TextConditionedPool pool({.heads = heads}, width);
    for (const auto& item : pool.named_parameters())
      file.weights[prefix + item.key()] = (item.value() + 0.3 * at::randn_like(item.value())).detach();
  }
  void drop_pool() {
    std::erase_if(file.weights, [](const auto& item) { return item.first.starts_with("objective."); });
  }

  /// Saves `file`, loads it as the model, and sets up the context with the data of `source`.
  void load(const std::string& source = kShapes) {
    save_model_file(options.checkpoint, file);
    loaded = load_for_inference(options.checkpoint, "cpu");
    whole = std::make_unique<DualEncoderEmbedder>(loaded.model, loaded.tokenizer);
    context.source = sources().make(task_of(source), "source");
    context.batch_size = 4;
    context.pool = checkpoint_pool(loaded);
  }
  TaskResult run_one(const std::string& yaml) const { return run_task(task_of(yaml), *whole, context); }
  std::string refusal(const std::string& yaml) const {
    const std::string measured = error_of([&] { run_one(yaml); });
    EXPECT_EQ(error_of([&] { check_task(task_of(yaml), *whole, context); }), measured);
    return measured;
  }

  struct Everything {
    std::vector<Sample> samples;
    TowerFeatures images;
  };
  Everything everything() const {
    EvaluationReader reader(context.source, whole->preprocessing(), 100, 1);
    Everything out;
    std::vector<at::Tensor> pixels;
    for (const EvaluationSample& sample : reader.next()) {
      out.samples.push_back(sample.sample);
      pixels.push_back(sample.pixels);
    }
    out.images = whole->encode_images(at::stack(pixels), {.tokens = true});
    return out;
  }
  /// Computes the cosines [N, M] of images and texts directly in double, with each image pooled for each text. Rounds the cosines, so
  /// that equal texts have equal scores.
  at::Tensor composed(const at::Tensor& tokens, const at::Tensor& texts) const {
    const auto pool = checkpoint_pool(loaded);
    pool->to(at::kDouble);
    const at::NoGradGuard no_grad;
    const at::Tensor queries = texts.to(at::kDouble), pooled = pool->forward(tokens.to(at::kDouble), queries).pooled;
    return ((pooled * queries).sum(-1) / pooled.norm(2, -1) / queries.norm(2, -1) * 1e9).round() / 1e9;
  }
  static metrics::RetrievalScores recalls(const at::Tensor& similarity, const std::vector<std::int64_t>& owner) {
    const auto tile = [&](metrics::RowRange images, metrics::RowRange texts) {
      return similarity.slice(0, images.begin, images.end).slice(1, texts.begin, texts.end);
    };
    return metrics::retrieval_recall(tile, similarity.size(0), at::tensor(owner, at::kLong), {1, 3});
  }
  void expect_recalls(const TaskResult& result, const metrics::RetrievalScores& expected) const {
    EXPECT_EQ(metric(result, "image_to_text_recall@1"), expected.image_to_text[0]);
    EXPECT_EQ(metric(result, "image_to_text_recall@3"), expected.image_to_text[1]);
    EXPECT_EQ(metric(result, "text_to_image_recall@1"), expected.text_to_image[0]);
    EXPECT_EQ(metric(result, "text_to_image_recall@3"), expected.text_to_image[1]);
  }

  InferenceModel loaded;
  std::unique_ptr<DualEncoderEmbedder> whole;
  EvaluationContext context;
};

/// All captions of the samples, and for each caption the index of its sample.
struct AllCaptions {
  std::vector<std::string> texts;
  std::vector<std::int64_t> owner;
  explicit AllCaptions(const std::vector<Sample>& samples) {
    for (std::size_t i = 0; i < samples.size(); ++i)
      for (const std::string& caption : samples[i].captions) {
        texts.push_back(caption);
        owner.push_back(static_cast<std::int64_t>(i));
      }
  }
};

TEST_F(Conditioned, RetrievalComparesEveryImageWithEveryCaption) {
  load();
  context.images = true;
  const TaskResult result = run_one("{name: retrieval, similarity: conditioned, topk: [1, 3]}");
  const Everything all = everything();
  const AllCaptions captions(all.samples);
  const at::Tensor similarity = composed(all.images.tokens, whole->encode_texts(captions.texts, {}).global);
  expect_recalls(result, recalls(similarity, captions.owner));
  EXPECT_EQ(result.samples, 10);
  EXPECT_TRUE(result.data.ends_with(" (conditioned)")) << result.data;
  const nlohmann::json sheets = sheets_of(result, "Image to text");
  ASSERT_FALSE(sheets.empty());
  for (const auto& sheet : sheets) {
    ASSERT_EQ(sheet.at("list").size(), 5U);
    EXPECT_NEAR(std::stod(sheet.at("list")[0].at("score").get<std::string>()), similarity.amax(1).max().item<double>(), 2);
  }
}

TEST_F(Conditioned, RetrievalWithAllCaptionsAsCandidatesIsExact) {
  load();
  const auto with = [&](const std::string& how) { return run_one(concat("{name: retrieval, ", how, "}")).metrics; };
  const auto exact = with("similarity: conditioned"), global = with("similarity: global");
  EXPECT_EQ(with("similarity: topk"), exact);
  EXPECT_EQ(with("similarity: topk, candidates: 50"), exact);
  EXPECT_NE(with("similarity: topk, candidates: 2"), exact);
  EXPECT_NE(exact, global);
}

TEST_F(Conditioned, RetrievalRanksCandidatesBeforeAllOthers) {
  load();
  const TaskResult result = run_one("{name: retrieval, similarity: topk, candidates: 3, topk: [1, 3]}");
  const Everything all = everything();
  const AllCaptions captions(all.samples);
  const TowerFeatures texts = whole->encode_texts(captions.texts, {});
  const at::Tensor exact = composed(all.images.tokens, texts.global), cosines = whole->similarity(all.images, texts);
  at::Tensor similarity = cosines - 4;
  const at::Tensor nearest = std::get<1>(cosines.sort(/*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, 3);
  similarity.scatter_(1, nearest, exact.gather(1, nearest));
  expect_recalls(result, recalls(similarity, captions.owner));
  EXPECT_TRUE(result.data.ends_with(" (conditioned, 3 candidates)")) << result.data;
}

/// Three images with long captions; the second image cannot be decoded.
class LongCaptions final : public IndexedSource {
 public:
  std::int64_t size() const override { return 3; }
  Sample get(std::int64_t index) const override {
    Sample sample;
    sample.key = concat("sample", index);
    static const std::vector<std::string> texts = {"a red circle. the blue square.\na picture", "red",
                                                   " a blue circle.</s>of"};
    sample.captions = {texts[static_cast<std::size_t>(index)]};
    if (index == 1)
      sample.encoded = "no picture";
    else
      sample.image = {32, 32, std::vector<std::uint8_t>(32 * 32 * 3, static_cast<std::uint8_t>(90 * index + 20))};
    return sample;
  }
  std::string describe() const override { return "long captions"; }
};

TEST_F(Conditioned, CaptionsOfUnreadableImagesAreNotQueries) {
  load();
  context.source = std::make_shared<LongCaptions>();
  const TaskResult result = run_one("{name: retrieval, similarity: conditioned, sentences: true, topk: [1, 3]}");
  const std::vector<std::string> sentences = {"a red circle", "the blue square", "a picture", "a blue circle", "of"};
  expect_recalls(result,
                 recalls(composed(everything().images.tokens, whole->encode_texts(sentences, {}).global), {0, 0, 0, 1, 1}));
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(result.skipped_total(), 1);
  for (const report::Outcomes& outcomes : result.outcomes)
    if (outcomes.metric == "text_to_image_recall@1") {
      EXPECT_EQ(outcomes.entries.size(), 5U);
    }
}

TEST_F(Conditioned, StreamsAreReadTwice) {
  load();
  const auto [tar, stream] = shards("shards", 9);
  const auto measure = [&](const std::string& path) {
    return run_one(concat("{name: retrieval, similarity: conditioned, source: {name: webdataset, path: ", path, "}}"));
  };
  const TaskResult indexed = measure(tar), streamed = measure(stream);
  EXPECT_EQ(indexed.samples, 9);
  EXPECT_EQ(streamed.samples, 9);
  EXPECT_EQ(indexed.metrics, streamed.metrics);
}

TEST_F(Conditioned, EachSentenceCanBeAQuery) {
  load();
  context.source = std::make_shared<LongCaptions>();
  for (const char* similarity : {"global", "conditioned"}) {
    const auto queries = [&](const char* sentences) {
      const TaskResult result =
          run_one(concat("{name: retrieval, sentences: ", sentences, ", topk: [1], similarity: ", similarity, "}"));
      for (const report::Outcomes& outcomes : result.outcomes)
        if (outcomes.metric == "text_to_image_recall@1") return outcomes.entries.size();
      return std::size_t{0};
    };
    EXPECT_EQ(queries("false"), 2U);
    EXPECT_EQ(queries("true"), 5U);
  }
}

TEST_F(Conditioned, ZeroShotCombinesTheMeanDirectionAndLengthOfThePrompts) {
  load();
  const TaskResult result =
      run_one("{name: zero_shot, similarity: conditioned, topk: [1, 2], templates: ['{}', 'a picture of the {}']}");
  const Everything all = everything();
  std::vector<std::string> prompts;
  for (const std::string& name : result.classes)
    for (const char* form : {"", "a picture of the "}) prompts.push_back(concat(form, name));
  const std::int64_t classes = std::ssize(result.classes);
  const at::Tensor embedded = whole->encode_texts(prompts, {}).global.to(at::kDouble).view({classes, 2, 24});
  const at::Tensor mean = (embedded / embedded.norm(2, {-1}, true)).mean(1);
  const at::Tensor direction = mean / mean.norm(2, {-1}, true) * embedded.norm(2, {-1}).mean(1, true);
  metrics::ZeroShotMeter meter(classes, {1, 2});
  std::vector<std::int64_t> labels;
  for (const Sample& sample : all.samples) labels.push_back(sample.label);
  meter.add(composed(all.images.tokens, direction), at::tensor(labels, at::kLong));
  EXPECT_EQ(metric(result, "top1"), meter.scores().topk[0]);
  EXPECT_EQ(metric(result, "top2"), meter.scores().topk[1]);
  const ConditionedEmbedder embedder(*whole, context.pool, std::nullopt, "here");
  EXPECT_TRUE(at::allclose(embedder.classes(whole->encode_texts(prompts, {}), 2).global, direction, 1e-6, 1e-9));
}

TEST_F(Conditioned, SegmentationComparesEachPatchSeparately) {
  load("{name: shapes, split: test, size: 6}");
  const auto names = context.source->class_names();
  const auto measure = [&](const std::string& patches) {
    return run_one(concat("{name: segmentation, candidates: all, patches: ", patches, "}"));
  };
  const TaskResult result = measure("conditioned"), attention = measure("attention");
  EXPECT_TRUE(result.data.ends_with(" (patches: conditioned)")) << result.data;
  EXPECT_TRUE(attention.data.ends_with(" (patches: attention)")) << attention.data;

  const ConditionedEmbedder embedder(*whole, context.pool, std::nullopt, "here");
  std::vector<std::string> prompts;
  for (const std::string& name : names) prompts.push_back(concat("a photo of a ", name, "."));
  const at::Tensor classes = embedder.classes(whole->encode_texts(prompts, {}), 1).global;
  EvaluationReader reader(context.source, whole->preprocessing(), 100, 1);
  metrics::SegmentationOptions how;
  how.grid = {4, 4};
  how.candidates = "all";
  metrics::SegmentationMeter alone(std::ssize(names), context.source->background_class()),
      looked_at(std::ssize(names), context.source->background_class());
  const auto pool = checkpoint_pool(loaded);
  const at::NoGradGuard no_grad;
  for (const EvaluationSample& sample : reader.next()) {
    const at::Tensor tokens = whole->encode_images(sample.pixels.unsqueeze(0), {.tokens = true}).tokens;  // [1, 16, 24]
    const at::Tensor target =
        at::from_blob(const_cast<std::uint8_t*>(sample.mask.data()), {32, 32}, at::kByte).to(at::kLong);
    const auto add = [&](metrics::SegmentationMeter& meter, const at::Tensor& scores) {  // [16, C]
      meter.add(metrics::segment_pixels(scores.t().reshape({-1, 4, 4}), target, how).unsqueeze(0), target.unsqueeze(0));
    };
    add(alone, composed(tokens[0].unsqueeze(1), classes));
    add(looked_at, pool->forward(tokens, classes.to(at::kFloat)).attention[0].t().to(at::kDouble));
  }
  EXPECT_NEAR(metric(result, "pixel_accuracy"), alone.scores().pixel_accuracy, 1e-3);
  EXPECT_NEAR(metric(result, "dataset_miou"), alone.scores().dataset_miou, 1e-3);
  EXPECT_NEAR(metric(attention, "pixel_accuracy"), looked_at.scores().pixel_accuracy, 1e-3);
  EXPECT_NE(metric(result, "pixel_accuracy"), metric(attention, "pixel_accuracy"));
  EXPECT_NE(metric(result, "pixel_accuracy"), metric(measure("cosine"), "pixel_accuracy"));
}

TEST_F(Conditioned, SegmentationByWindowsUsesThePool) {
  load("{name: shapes, split: test, size: 4}");
  const auto accuracy = [&](const std::string& patches) {
    return metric(
        run_one(concat("{name: segmentation, windows: {short_side: 48, size: 32, stride: 16}, candidates: all, "
                       "patches: ",
                       patches, "}")),
        "pixel_accuracy");
  };
  EXPECT_NE(accuracy("conditioned"), accuracy("cosine"));
  EXPECT_NE(accuracy("conditioned"), accuracy("attention"));
}

TEST_F(Conditioned, HardNegativesUseThePool) {
  load("{name: shapes, split: test, size: 24, negatives: true}");
  const auto result = run_one("{name: hard_negatives, similarity: conditioned}");
  const Everything all = everything();
  double right = 0, pairs = 0;
  for (std::size_t i = 0; i < all.samples.size(); ++i)
    for (const HardNegative& wrong : all.samples[i].negatives) {
      const at::Tensor scores = composed(all.images.tokens.narrow(0, static_cast<std::int64_t>(i), 1),
                                         whole->encode_texts({all.samples[i].captions.front(), wrong.caption}, {}).global)[0];
      right += scores[0].item<double>() > scores[1].item<double>() ? 1 : 0;
      ++pairs;
    }
  EXPECT_NEAR(metric(result, "accuracy"), right / pairs, 1e-9);
}

TEST_F(Conditioned, OptionsUseThePool) {
  load("{name: shapes, split: test, size: 12}");
  const Everything all = everything();
  const std::vector<std::string> captions = {"a red circle", "a blue square", "a green star"};
  nlohmann::json items;
  for (std::size_t i = 0; i < all.samples.size(); ++i) {
    const std::string name = concat("picture", i, ".png");
    io::write_file(path(name), encode_png(all.samples[i].image));
    items.push_back({{"image", name}, {"options", captions}});
  }
  io::write_file(path("options.json"), items.dump());
  const auto accuracy = [&](const char* similarity) {
    return metric(run_one(concat("{name: options, layout: options, annotations: ", path("options.json"),
                                 ", images: ", folder_.string(), ", similarity: ", similarity, "}")),
                  "accuracy");
  };
  const TowerFeatures texts = whole->encode_texts(captions, {});
  const auto first_is_best = [](const at::Tensor& scores) {
    return scores.argmax(1).eq(0).to(at::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(accuracy("conditioned"), first_is_best(composed(all.images.tokens, texts.global)), 1e-9);
  EXPECT_NE(accuracy("conditioned"), accuracy("global"));
  EXPECT_NEAR(accuracy("global"), first_is_best(whole->similarity(all.images, texts)), 1e-9);
}

TEST_F(Conditioned, RejectsAModelWithoutAPoolAndNamesTheWayOut) {
  drop_pool();
  load();
  EXPECT_EQ(context.pool, nullptr);
  EXPECT_EQ(refusal("{name: retrieval, similarity: topk}"),
            "retrieval.similarity is topk, but there is no text-conditioned pool: objectives like flair have one, and "
            "checkpoints of their runs hold it (objective.pool.*); take such a model, or retrieval.similarity: global");
  for (const char* yaml :
       {"{name: zero_shot, similarity: conditioned}", "{name: hard_negatives, similarity: conditioned}",
        "{name: segmentation, patches: attention}"})
    EXPECT_TRUE(contains(refusal(yaml), "there is no text-conditioned pool")) << yaml;
  EXPECT_TRUE(contains(refusal("{name: segmentation, patches: attention}"), "segmentation.patches: cosine"));
}

TEST_F(Conditioned, RejectsChosenSlots) {
  load();
  context.slots = {0, 1};
  EXPECT_EQ(refusal("{name: retrieval, similarity: conditioned}"),
            "retrieval.similarity is conditioned, and the text-conditioned pool takes whole embeddings: leave out "
            "--slots, or "
            "take retrieval.similarity: global");
}

TEST_F(Conditioned, RejectsAPoolOfAnotherWidth) {
  drop_pool();
  add_pool("objective.pool.", 4, 16);
  load();
  EXPECT_EQ(error_of([&] { run_one("{name: retrieval, similarity: conditioned}"); }),
            "retrieval.similarity: the text-conditioned pool takes embeddings of width 16, but this model's are 24 and its image "
            "tokens 24 wide: take a projection that maps both into one space (linear), as the objective was trained with");
}

TEST_F(Conditioned, RejectsContradictorySettings) {
  const auto expect = [&](const std::string& yaml, const std::string& part) {
    const std::string problem = error_of([&] { resolve_tasks({task_of(yaml)}, "tasks"); });
    EXPECT_TRUE(contains(problem, part));
  };
  expect("{name: retrieval, similarity: conditioned, text_encoder_free: true}",
         "similarity: is conditioned, which needs the text");
  expect("{name: zero_shot, similarity: topk, text_encoder_free: true}", "similarity: is topk, which needs the text");
  expect("{name: segmentation, patches: conditioned, by: groups}", "patches: sets how patches are compared");
  expect("{name: segmentation, patches: conditioned, last_block: naclip}", "last_block: changes the patch embeddings");
  expect("{name: segmentation, patches: attention, background_threshold: 0.1}", "threshold_of: is probability");
  expect("{name: retrieval, similarity: nearest}", "topk");
}

TEST_F(Conditioned, PoolInAWeightedSumHasTheSettingsOfItsTerm) {
  drop_pool();
  add_pool("objective.objectives.fine.pool.", 2);
  file.extra["config"] =
      "objective: {name: weighted_sum, objectives: [{name: clip, weight: 1.0}, {name: flair, label: fine, heads: 2, "
      "zero_token: false}]}\n";
  load();
  ASSERT_NE(context.pool, nullptr);
  EXPECT_EQ(context.pool->heads(), 2);
  EXPECT_FALSE(context.pool->zero_token());
  for (const auto& item : context.pool->named_parameters())
    EXPECT_TRUE(item.value().equal(file.weights.at("objective.objectives.fine.pool." + item.key()))) << item.key();
}

TEST_F(Conditioned, PoolOfAFileWithoutConfigurationHasTheDefaults) {
  file.extra.erase("config");
  load();
  EXPECT_EQ(context.pool->heads(), 8);
  EXPECT_TRUE(context.pool->zero_token());
}

TEST_F(Conditioned, ErrorForIncompletePoolWeightsNamesTheFile) {
  file.weights.erase("objective.pool.attn.out_proj.bias");
  EXPECT_EQ(error_of([&] { load(); }),
            options.checkpoint +
                ": the weights objective.pool.* do not make a text-conditioned pool: attn.out_proj.bias is "
                "missing; take the checkpoint as trainer or tessera-convert wrote it");
}

TEST_F(Conditioned, EvaluateLoadsThePoolFromTheCheckpoint) {
  options.task = "retrieval";
  options.data = "{name: shapes, split: test, size: 10}";
  options.overrides = {"similarity=topk", "candidates=4"};
  EXPECT_EQ(run(), 0);
  const nlohmann::json task = results().at("tasks").at(0);
  EXPECT_EQ(task.at("settings").at("similarity"), "topk");
  EXPECT_EQ(task.at("settings").at("candidates"), 4);
  EXPECT_TRUE(contains(task.at("data").get<std::string>(), "(conditioned, 4 candidates)"));
  const std::string page = io::read_file(options.out + "/report.html");
  EXPECT_TRUE(contains(page, "(conditioned, 4 candidates)"));
  EXPECT_TRUE(contains(page, "The 4 texts nearest to an image's embedding"));
  drop_pool();
  save_model_file(options.checkpoint, file);
  EXPECT_TRUE(contains(error(), "there is no text-conditioned pool"));
}

}  // namespace
}  // namespace tessera
