#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/evaluation/metrics/zero_shot.h"
#include "src/evaluation/embedder_views.h"
#include "src/evaluation/token_space.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr std::int64_t kWords = 13;
constexpr std::int64_t kRed = 6, kBlue = 7, kCircle = 8, kPlural = 9, kSquare = 10;

std::shared_ptr<const Tokenizer> word_pieces() {
  config::ModuleSettings settings{"wordpiece"};
  settings.settings = config::parse_yaml("{context_length: 12}", "tokenizer.yaml");
  return tokenizers().make(
      settings, "tokenizer",
      TokenizerContext{"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ncircle\n##s\nsquare\n##set\nset\n"});
}

/// Embeds images and texts as weights of the vocabulary tokens above. An image of gray value 10 i + 5 has the weights
/// `weights[i]`, multiplied by a factor that grows from patch to patch. The tokens of a text have the weight 2. If `named` is
/// false, the embedder acts like CLIP, where the dimensions of embeddings are not tokens.
class WordEmbedder final : public test::FixedEmbedder {
 public:
  std::shared_ptr<const Tokenizer> words = word_pieces();
  std::vector<std::map<std::int64_t, float>> weights;
  bool named = true;
  mutable std::int64_t embedded_texts = 0;

  WordEmbedder() : FixedEmbedder(16, 2) {}
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    const at::Tensor& pixels = images.pixels;
    TowerFeatures out;
    out.global = at::zeros({pixels.size(0), kWords});
    for (std::int64_t i = 0; i < pixels.size(0); ++i)
      for (const auto& [token, weight] : weights.at(pixels[i][0][0][0].item<std::uint8_t>() / 10U))
        out.global[i][token] = weight;
    if (needs.tokens) out.tokens = out.global.unsqueeze(1) * at::tensor({1.0F, 2.0F, 3.0F, 5.0F}).view({1, 4, 1});
    return out;
  }
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds&) const override {
    embedded_texts += std::ssize(texts);
    TowerFeatures out;
    out.global = at::zeros({std::ssize(texts), kWords});
    for (std::int64_t i = 0; i < std::ssize(texts); ++i)
      for (const std::int64_t token : words->encode(texts[static_cast<std::size_t>(i)]))
        if (token > 4) out.global[i][token] = 2;
    return out;
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override {
    const std::int64_t count = prompts.global.size(0) / per_class;
    TowerFeatures out;
    out.global =
        metrics::class_embeddings(prompts.global, at::arange(count, at::kLong).repeat_interleave(per_class), count);
    return out;
  }
  at::Tensor similarity(const TowerFeatures& a, const TowerFeatures& b) const override {
    return at::cosine_similarity(a.global.to(at::kDouble).unsqueeze(1), b.global.to(at::kDouble).unsqueeze(0), 2);
  }
  const Tokenizer* tokenizer() const override { return words.get(); }
  std::int64_t token_space() const override { return named ? kWords : 0; }
  at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const override {
    return images.tokens.index_select(2, at::tensor(ids, at::kLong));
  }
};

/// A source in which sample i is an image of gray value 10 i + 5.
class NamedSource final : public IndexedSource {
 public:
  std::vector<std::string> names, captions;
  std::vector<std::int64_t> labels;

  std::int64_t size() const override { return std::ssize(labels); }
  Sample get(std::int64_t index) const override {
    Sample sample;
    sample.key = concat("sample", index);
    sample.label = labels.at(static_cast<std::size_t>(index));
    sample.image = {16, 16, std::vector<std::uint8_t>(16 * 16 * 3, static_cast<std::uint8_t>(10 * index + 5))};
    if (!captions.empty()) sample.captions = {captions.at(static_cast<std::size_t>(index))};
    return sample;
  }
  std::vector<std::string> class_names() const override { return names; }
  std::string describe() const override { return "named pictures"; }
};

class Tokens : public FolderTest {
 protected:
  Tokens() {
    source->names = {"red", "blue", "circles"};
    source->labels = {0, 1, 2};
    source->captions = {"a red circle", "a blue square", "circles"};
    model.weights = {{{kRed, 3.0F}, {kCircle, 1.0F}},
                     {{kBlue, 1.0F}, {kSquare, 2.0F}, {kCircle, 1.0F}},
                     {{kRed, 0.5F}, {kPlural, 4.0F}, {kCircle, 0.25F}}};
    context.source = source;
    context.batch_size = 2;
  }

  TaskResult run(const std::string& yaml) const { return run_task(task_of(yaml), model, context); }
  std::map<std::string, double> numbers(const std::string& yaml) const { return by_name(run(yaml)); }
  std::string error_of(const std::string& yaml) const {
    return tessera::error_of([&] { run(yaml); });
  }

  WordEmbedder model;
  std::shared_ptr<NamedSource> source = std::make_shared<NamedSource>();
  EvaluationContext context;
};

TEST_F(Tokens, HaveReadableNames) {
  const std::vector<std::string> names = vocabulary_names(*model.words, 15);
  EXPECT_EQ(names, (std::vector<std::string>{"#0", "#1", "#2", "#3", "#4", "a", "red", "blue", "circle", "##s",
                                             "square", "##set", "set", "#13", "#14"}));
}

TEST_F(Tokens, SpecialTokensAreNotEntries) {
  const TokenSpace space(model, context, {}, "tokens");
  EXPECT_EQ(space.size(), kWords - 5);
  std::vector<std::int64_t> ids;
  for (const std::int64_t entry : space.entries_of("circles [MASK] zebra red red")) ids.push_back(space.id(entry));
  EXPECT_EQ(ids, (std::vector<std::int64_t>{kCircle, kPlural, kRed, kRed}));
  const at::Tensor activations = space.activations(model.encode_images(at::full({1, 3, 16, 16}, 25, at::kByte), {}));
  EXPECT_EQ(activations.sizes(), (at::IntArrayRef{1, kWords - 5}));
  EXPECT_EQ(activations[0][space.entries_of("red").front()].item<float>(), 0.5F);
}

TEST_F(Tokens, AreReadBySimilarityToTheirTextsInOtherModels) {
  model.named = false;
  const TokenSpace space(model, context, {}, "tokens");
  EXPECT_EQ(space.size(), kWords - 6) << "set and ##set have the same text";
  EXPECT_EQ(space.name(space.entries_of("set").front()), "set");
  const TowerFeatures image = model.encode_images(at::full({1, 3, 16, 16}, 5, at::kByte), {});
  const at::Tensor activations = space.activations(image);
  for (const char* word : {"red", "circle", "square"})
    EXPECT_EQ(activations[0][space.entries_of(word).front()].item<double>(),
              model.similarity(image, model.encode_texts({word}, {})).item<double>());
}

TEST_F(Tokens, VocabularyIsEmbeddedOnceForAllTasks) {
  model.named = false;
  const auto embedded = [&](const std::string& yaml) {
    const std::int64_t before = model.embedded_texts;
    run(yaml);
    return model.embedded_texts - before;
  };
  EXPECT_EQ(embedded("interpretability"), kWords - 6);
  EXPECT_EQ(embedded("interpretability"), kWords - 6) << "nothing is shared yet";
  context.vocabulary_texts = std::make_shared<std::map<std::uint64_t, TowerFeatures>>();
  EXPECT_EQ(embedded("interpretability"), kWords - 6);
  EXPECT_EQ(embedded("tokens"), 0);
  EXPECT_EQ(embedded("{name: interpretability, templates: [\"a {}\", \"{}\"]}"), 2 * (kWords - 6)) << "other texts";
}

TEST_F(Tokens, ClassNameRanksLikeItsBestToken) {
  // In the first image, the class name `red` ranks first. In the second, `blue` ranks after `square` and ties with `circle`. In the third,
  // the class name `circles` ranks first, because a name has the rank of its best token, here `##s`.
  const auto found = numbers("{name: interpretability, topk: [1, 2, 3]}");
  EXPECT_DOUBLE_EQ(found.at("top1"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(found.at("top2"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(found.at("top3"), 1);
  EXPECT_EQ(found.at("median_rank"), 1);
  EXPECT_EQ(found.at("tokens"), kWords - 5);
}

TEST_F(Tokens, SpecialTokensDoNotCompeteWithClassNames) {
  for (auto& image : model.weights)
    for (std::int64_t special = 0; special < 5; ++special) image[special] = 9;
  EXPECT_DOUBLE_EQ(numbers("{name: interpretability, topk: [1]}").at("top1"), 2.0 / 3);
}

TEST_F(Tokens, ClassNameWithoutATokenRanksLast) {
  source->names = {"zebra", "blue", "circles"};
  const auto found = numbers("{name: interpretability, topk: [8, 9]}");
  EXPECT_DOUBLE_EQ(found.at("top8"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(found.at("top9"), 1);
  source->names = {"zebra", "ant", "bee"};
  EXPECT_EQ(error_of("interpretability"),
            "interpretability: the vocabulary has no token of any class name, the first being \"zebra\": are they in its "
            "language?");
}

TEST_F(Tokens, ClassNamesComeFromTheSettings) {
  EXPECT_DOUBLE_EQ(numbers("{name: interpretability, classes: [circle, square, set], topk: [2]}").at("top2"), 2.0 / 3);
}

TEST_F(Tokens, RejectAnotherVocabularyForTokenWeights) {
  EXPECT_EQ(error_of("{name: tokens, vocabulary: {name: wordpiece, vocab: x.txt}}"),
            "tokens.vocabulary: this model's embeddings are weights of its own vocabulary: leave the key out");
}

TEST_F(Tokens, AreShownByWeight) {
  context.images = true;
  context.out = folder_.string();
  const TaskResult result = run("{name: tokens, samples: 3, per_sample: 2, maps: 1}");
  const nlohmann::json sheets = sheets_of(result, "Tokens");
  ASSERT_EQ(sheets.size(), 3U);
  const nlohmann::json &cloud = sheets[2].at("cloud"), &images = sheets[2].at("images");
  EXPECT_EQ(cloud.size(), 2U);
  EXPECT_EQ(cloud[0].dump(), R"(["##s",4.0])");
  EXPECT_EQ(cloud[1][0], "red");
  ASSERT_EQ(images.size(), 2U) << "the image and one map";
  EXPECT_EQ(images[0].at("name"), "sample2");
  EXPECT_EQ(images[1].at("caption"), "##s");
  EXPECT_EQ(images[1].at("heat").at("values").dump(), "[0.0,0.25,0.5,1.0]");
  const auto json = nlohmann::json::parse(io::read_file(context.out + "/tokens.json"));
  EXPECT_EQ(json.at(2).at("key"), "sample2");
  EXPECT_EQ(json.at(2).at("tokens").at(0), nlohmann::json({{"token", "##s"}, {"weight", 4.0}}));
  EXPECT_EQ(json.at(2).at("maps").at(0).at("activation"), nlohmann::json({0.0, 0.25, 0.5, 1.0}));
}

TEST_F(Tokens, AreReadWithoutShowingImages) {
  const TaskResult result = run("{name: tokens, samples: 2}");
  EXPECT_TRUE(result.cards.empty());
  EXPECT_EQ(result.readings, (std::vector<Reading>{{"sample0", "", {{"red", 3}, {"circle", 1}}},
                                                   {"sample1", "", {{"square", 2}, {"blue", 1}, {"circle", 1}}}}));
  EXPECT_EQ(result.readings[0].line(), "red 3.000, circle 1.000");
}

TEST_F(Tokens, TokensWithoutWeightAreNotShown) {
  context.images = true;
  EXPECT_EQ(sheets_of(run("{name: tokens, samples: 1}"), "Tokens").at(0).at("cloud").size(), 2U);
}

TEST_F(Tokens, HeatMapOfAWordIsTheMeanOverItsTokens) {
  context.images = true;
  const TaskResult result = run("{name: tokens, samples: 3, words: [circles, blue]}");
  const nlohmann::json images = sheets_of(result, "Tokens").at(2).at("images");
  ASSERT_EQ(images.size(), 3U);
  EXPECT_EQ(images[1].at("caption"), "circles");
  EXPECT_EQ(images[1].at("heat").at("values").dump(), "[0.0,0.25,0.5,1.0]");
  EXPECT_EQ(images[2].at("heat").at("values").dump(), "[0.0,0.0,0.0,0.0]") << "the same everywhere";
  EXPECT_EQ(error_of("{name: tokens, words: [zebra]}"), "tokens.words: the vocabulary has no token of \"zebra\"");
}

TEST_F(Tokens, AreComparedWithTheCaptions) {
  // For each of the three images, the five highest tokens include two tokens of its caption: red and circle; blue and square; ##s and
  // circle. The captions' token `a` has no weight.
  const auto found = numbers("tokens");
  EXPECT_NEAR(found.at("caption_precision@5"), (2 + 2 + 2) / 15.0, 1e-9);
  EXPECT_NEAR(found.at("active_tokens_per_image"), 8 / 3.0, 1e-9);
  EXPECT_NEAR(found.at("active_tokens_per_text"), 8 / 3.0, 1e-9);
  EXPECT_EQ(found.at("dead_image_tokens"), kWords - 5);
  EXPECT_EQ(found.at("dead_text_tokens"), kWords - 6);
}

TEST_F(Tokens, HaveNoHeatMapsInOtherModels) {
  model.named = false;
  context.images = true;
  const TaskResult result = run("{name: tokens, samples: 1}");
  const nlohmann::json sheet = sheets_of(result, "Tokens").at(0);
  EXPECT_EQ(sheet.at("cloud")[0][0], "red");
  EXPECT_EQ(sheet.at("images").size(), 1U) << "no maps";
  EXPECT_EQ(result.metrics.size(), 1U) << "sparsity is not measured";
  EXPECT_EQ(
      error_of("{name: tokens, words: [red]}"),
      "tokens.words: this model's embeddings are not weights of vocabulary tokens: take one whose towers both read "
      "out by token_projection, with projection: none, as in configs/shapes/stair.yaml");
}

TEST_F(Tokens, ReplaceTheTextTower) {
  const MultiHotEmbedder free(model, "");
  const at::Tensor texts = free.encode_texts({"circles circles red", "zebra"}, {}).global;
  at::Tensor expected = at::zeros({2, kWords});
  for (const std::int64_t token : {kRed, kCircle, kPlural}) expected[0][token] = 1;
  EXPECT_TRUE(texts.equal(expected)) << texts;
  // The third image is far from the caption "a red circle": it has mostly the token ##s, which that caption does not contain.
  model.weights[0] = {{kRed, 1.0F}, {kCircle, 1.0F}};
  const TaskResult result = run("{name: retrieval, text_encoder_free: true, topk: [1]}");
  EXPECT_EQ(result.data, "named pictures (no text encoder)");
  EXPECT_EQ(result.metrics.at(0).second, 1);
  EXPECT_EQ(model.embedded_texts, 0);
  EXPECT_EQ(run("{name: zero_shot, text_encoder_free: true, templates: [\"a {}\"], topk: [1]}").metrics.at(0).second,
            1);
  EXPECT_EQ(model.embedded_texts, 0);
}

TEST_F(Tokens, ReplaceTheTextTowerOnlyIfEmbeddingsAreTokenWeights) {
  model.named = false;
  for (const char* task : {"retrieval", "zero_shot"})
    EXPECT_EQ(
        error_of(concat("{name: ", task, ", text_encoder_free: true}")),
        concat(task,
               ".text_encoder_free: this model's embeddings are not weights of vocabulary tokens: take one whose "
               "towers both read out by token_projection, with projection: none, as in configs/shapes/stair.yaml"));
}

}  // namespace
}  // namespace tessera
