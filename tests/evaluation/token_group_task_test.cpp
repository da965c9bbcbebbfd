#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/token_spans.h"
#include "tests/evaluation/task_case.h"
#include <tessera/evaluation/embedder_view.h>
#include <tessera/io/atomic_file.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Spans = std::vector<std::array<std::int64_t, 2>>;

TEST(TokenSpans, MatchTheTextOfTheTokens) {
  EXPECT_EQ(token_spans("A red  circle.", {"", "a", " red", " circ", "le", ".", ""}, false),
            (Spans{{0, 0}, {0, 1}, {2, 5}, {7, 11}, {11, 13}, {13, 14}, {14, 14}}));
  EXPECT_EQ(token_spans("x y", {" ", "x", " ", "y"}, false), (Spans{{0, 0}, {0, 1}, {1, 1}, {2, 3}}))
      << "a token that is a space";
  EXPECT_EQ(token_spans("a red circle", {"a", " red"}, true), (Spans{{0, 1}, {2, 5}}));
}

TEST(TokenSpans, AllowTokensWithoutAccents) {
  EXPECT_EQ(token_spans("caf\u00c9s x", {"cafe", "s", " x"}, false), (Spans{{0, 5}, {5, 6}, {7, 8}}));
  EXPECT_EQ(token_spans("\u00c9t\u00e9", {"\u00e9t\u00e9"}, false), (Spans{{0, 5}}));
}

TEST(TokenSpans, RejectTokensThatSpellSomethingElse) {
  EXPECT_EQ(token_spans("a zebra runs", {"a", "", " runs"}, true), std::nullopt) << "an unknown word";
  EXPECT_EQ(token_spans("a &amp; b", {"a", " &", " b"}, true), std::nullopt);
  EXPECT_EQ(token_spans("a", {"a", " b"}, true), std::nullopt);
  EXPECT_EQ(token_spans("a zebra", {"a", ""}, false), std::nullopt) << "an unknown word at the end of a complete text";
}

TEST(TokenSpans, JoinToWordsWithoutPunctuation) {
  const auto described = [](const std::string& text, const std::vector<std::string>& tokens) {
    std::string out;
    for (const TextWord& word : words_of(text, tokens, false)) {
      out += concat("[", word.text, " ", word.span[0], "-", word.span[1]);
      for (const std::int64_t token : word.tokens) out += concat(" ", token);
      out += "]";
    }
    return out;
  };
  EXPECT_EQ(described("A red,  circle.", {"", "a", " red", ",", " circ", "le", ".", ""}), "[A 0-1 1][red 2-5 2][circle 8-14 4 5]");
  EXPECT_EQ(described("don't", {"don", "'", "t"}), "[don't 0-5 0 2]");
  EXPECT_EQ(described("\u72ac \u732b", {"\u72ac", " \u732b"}), "[\u72ac 0-3 0][\u732b 4-7 1]");
  EXPECT_EQ(described("a zebra runs", {"a", "", " ru", "ns"}), "[a -1--1 0][runs -1--1 2 3]") << "an unknown word";
}

constexpr std::int64_t kGroups = 3;

std::shared_ptr<const Tokenizer> words() {
  config::ModuleSettings settings{"wordpiece"};
  settings.settings = config::parse_yaml("{context_length: 12}", "tokenizer.yaml");
  return tokenizers().make(settings, "tokenizer",
                           TokenizerContext{"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nand\nred\nblue\ncircle\n##s\n"
                                            "square\n,\n.\n"});
}

std::shared_ptr<DualEncoder> small_model() {
  at::manual_seed(5);
  return std::make_shared<DualEncoder>(config::read<ModelSettings>(config::parse_yaml(
      "image: {encoder: {name: groupvit, image_size: 32, patch_size: 8, width: 16, depths: [1, 1, 1], heads: [2, 2, "
      "2],\n"
      "                  num_group_tokens: [8, 4, 0], num_output_groups: [8, 4]},\n"
      "        readout: {name: groups, output_dim: 16}, projection: none}\n"
      "text: {encoder: {name: text_group_encoder, vocab_size: 14, context_length: 12, width: 16, heads: 2,\n"
      "                 token_layers: 1, group_layers: 1, num_groups: 3},\n"
      "       readout: {name: groups, output_dim: 16}, projection: none}\n"
      "preprocessing: {image_size: 32}\n",
      "model.yaml")));
}

/// A model that assigns the token at each position of a caption to the group `group_of(position)`. Position 0 is [CLS]. The
/// weights of padding are NaN.
class ChosenGroups final : public EmbedderView {
 public:
  using EmbedderView::EmbedderView;
  std::function<std::int64_t(std::int64_t place)> group_of;
  bool attention = true, tokens = false;
  mutable std::int64_t images = 0;  // the number of images that the image tower embedded

  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& given, const ViewNeeds& needs) const override {
    images += given.values().size(0);
    return EmbedderView::encode_images(given, needs);
  }

  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override {
    TowerFeatures out = EmbedderView::encode_texts(texts, needs);
    if (!attention) out.attention = at::Tensor();
    if (tokens) out.tokens = features_of_tokens(out.input.mask);
    if (!out.attention.defined() || group_of == nullptr) return out;
    out.attention = at::zeros_like(out.attention);
    for (std::int64_t place = 0; place < out.attention.size(2); ++place)
      out.attention.select(2, place).select(1, group_of(place)).fill_(0.5);
    out.attention.masked_fill_(out.input.mask.logical_not().unsqueeze(1), NAN);
    return out;
  }

 private:
  // Returns features [B, L, 2] in which the tokens of a group are near each other.
  at::Tensor features_of_tokens(const at::Tensor& mask) const {
    at::Tensor out = at::zeros({mask.size(0), mask.size(1), 2});
    for (std::int64_t place = 0; place < mask.size(1); ++place)
      out.select(1, place).fill_(10 * static_cast<double>(group_of(place)) + 0.1 * static_cast<double>(place));
    return out.masked_fill_(mask.logical_not().unsqueeze(2), NAN);
  }
};

/// Gray images with captions and annotated phrases.
class PhraseSource final : public IndexedSource {
 public:
  struct Caption {
    std::string text;
    std::vector<std::string> phrases;
  };
  std::vector<Caption> captions;
  std::vector<std::string> files;  // contents of image files; sample i has files[i] instead of a gray image

  std::int64_t size() const override { return std::ssize(captions); }
  Sample get(std::int64_t index) const override {
    const Caption& caption = captions.at(static_cast<std::size_t>(index));
    Sample sample;
    sample.key = concat("sample", index);
    if (index < std::ssize(files))
      sample.encoded = files[static_cast<std::size_t>(index)];
    else
      sample.image = {32, 32, std::vector<std::uint8_t>(32 * 32 * 3, static_cast<std::uint8_t>(10 * index))};
    sample.captions = {caption.text, "another one"};
    sample.objects.emplace_back();  // an object whose phrase is not in the caption
    for (const std::string& phrase : caption.phrases) {
      ObjectAnnotation object;
      const auto begin = static_cast<std::int64_t>(caption.text.find(phrase));
      object.span = {begin, begin + std::ssize(phrase)};
      sample.objects.push_back(object);
    }
    return sample;
  }
  std::string describe() const override { return "phrases"; }
};

class TokenGroups : public FolderTest {
 protected:
  TokenGroups() {
    source->captions = {{"a red circle and a blue square", {"a red circle", "a blue square"}}};
    context.source = source;
    context.batch_size = 2;
  }

  TaskResult run(const std::string& yaml = "token_group_iou") const { return run_task(task_of(yaml), model, context); }
  std::map<std::string, double> numbers() const { return by_name(run()); }
  std::string error(const std::string& yaml = "token_group_iou") const {
    return error_of([&] { run(yaml); });
  }

  DualEncoderEmbedder whole{small_model(), words()};
  ChosenGroups model{whole};
  std::shared_ptr<PhraseSource> source = std::make_shared<PhraseSource>();
  EvaluationContext context;
};

TEST_F(TokenGroups, ThatEqualThePhrasesScoreOne) {
  for (const std::vector<std::int64_t>& order : {std::vector<std::int64_t>{0, 1, 2}, {2, 0, 1}}) {
    model.group_of = [&](std::int64_t place) {
      const std::int64_t part = place < 4 ? 0 : place < 5 ? 1 : 2;  // "and" is a separate group; [CLS] joins the first phrase
      return order[static_cast<std::size_t>(part)];
    };
    const auto found = numbers();
    for (const char* name : {"iou", "precision", "recall", "f1"}) EXPECT_DOUBLE_EQ(found.at(name), 1) << name;
    EXPECT_EQ(found.at("groups"), kGroups);
    EXPECT_EQ(found.at("groups_per_caption"), 3);
    EXPECT_EQ(found.at("phrases_per_caption"), 2);
  }
}

TEST_F(TokenGroups, OneGroupForAllWordsMatchesHalfOfOnePhrase) {
  model.group_of = [](std::int64_t) { return 1; };
  const auto found = numbers();
  // The caption has two phrases of three words each. The only group contains all six words and is matched with one of these phrases. The
  // other phrase is matched with an empty group.
  EXPECT_DOUBLE_EQ(found.at("iou"), (0.5 + 0) / 2);
  EXPECT_DOUBLE_EQ(found.at("recall"), 0.5);
  EXPECT_EQ(found.at("groups_per_caption"), 1);
}

TEST_F(TokenGroups, AreComparedWithEqualChunksAndRandomGroups) {
  model.group_of = [](std::int64_t) { return 0; };
  auto found = numbers();
  // The caption of seven words is cut into the chunks "a red circle", "and a" and "blue square".
  EXPECT_DOUBLE_EQ(found.at("chunks_iou"), (1 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(found.at("chunks_precision"), 1);
  EXPECT_DOUBLE_EQ(found.at("chunks_recall"), (1 + 2.0 / 3) / 2);
  source->captions.assign(200, source->captions.front());
  context.batch_size = 64;
  found = numbers();
  // Random groups score higher than a single group, because two of the three groups are matched with phrases. But they still differ much
  // from the phrases.
  EXPECT_GT(found.at("random_iou"), 0.3);
  EXPECT_LT(found.at("random_iou"), 0.6);
}

TEST_F(TokenGroups, DoNotDependOnTheBatchSize) {
  source->captions = {{"a red circle and a blue square", {"a red circle", "a blue square"}},
                      {"blue circles", {"blue circles"}},
                      {"a square and red circles and a circle", {"a square", "red circles", "a circle"}}};
  const TaskResult two = run();
  ASSERT_EQ(two.outcomes.size(), 12U) << "four scores of the model's groups, of chunks and of random groups";
  for (const report::Outcomes& outcomes : two.outcomes) {
    EXPECT_EQ(outcomes.entries.size(), 3U) << "one for each sample";
    EXPECT_TRUE(two.intervals.contains(outcomes.metric)) << outcomes.metric;
  }
  expect_outcomes_give_metrics(two, 1e-9);
  context.batch_size = 1;
  EXPECT_EQ(run().metrics, two.metrics);
  EXPECT_EQ(two.samples, 3);
}

TEST_F(TokenGroups, AreClustersOfTokensForATowerWithoutGroups) {
  model.attention = false;
  model.tokens = true;
  model.group_of = [](std::int64_t place) { return place < 1 ? 7 : place < 4 ? 0 : place < 5 ? 1 : 2; };
  const auto measured = [&](int clusters) {
    return by_name(run(concat("{name: token_group_iou, by: k_means, clusters: ", clusters, "}")));
  };
  auto found = measured(3);
  EXPECT_DOUBLE_EQ(found.at("iou"), 1) << "[CLS] and padding do not use up a cluster";
  EXPECT_EQ(found.at("groups"), 3);
  found = measured(1);
  EXPECT_DOUBLE_EQ(found.at("iou"), 0.5);
  EXPECT_EQ(found.at("groups"), 1);
  model.tokens = false;
  EXPECT_EQ(
      error("{name: token_group_iou, by: k_means}"),
      "token_group_iou.by: this model's text tower outputs no features of single tokens: take one without groups, as "
      "text_transformer is, or by: groups");
}

TEST_F(TokenGroups, AllTokensOfAWordBelongToItsPhrase) {
  source->captions = {{"blue circles and a square", {"blue circles", "a square"}}};
  model.group_of = [](std::int64_t place) { return place < 3 ? 0 : place < 5 ? 1 : 2; };  // "##s" is in the group of "and"
  const auto found = numbers();
  EXPECT_DOUBLE_EQ(found.at("iou"), (2.0 / 3 + 1) / 2);
  EXPECT_DOUBLE_EQ(found.at("precision"), 1);
}

TEST_F(TokenGroups, PhraseEndsBeforeItsPunctuation) {
  source->captions = {{"a red circle, a blue square.", {"a red circle", "a blue square"}}};
  model.group_of = [](std::int64_t place) { return place == 4 || place == 8 ? 1 : place < 4 ? 0 : 2; };
  const auto found = numbers();
  EXPECT_DOUBLE_EQ(found.at("iou"), 1);
  // The caption of eight tokens is cut into the chunks "a red circle", ", a blue" and "square .".
  EXPECT_DOUBLE_EQ(found.at("chunks_iou"), (1 + 2.0 / 3) / 2);
  EXPECT_EQ(found.at("groups_per_caption"), 3);
}

TEST_F(TokenGroups, PhrasesBeyondTheContextDoNotCount) {
  // Ten words fit between [CLS] and [SEP]. These ten include only "a" of the phrase "a square" and nothing of the phrase "circles".
  source->captions = {
      {"a red circle and a blue square and red a square and circles", {"a red circle", "a square", "circles"}}};
  source->captions.push_back({"a circle and a circle and a circle and a blue square", {"blue square"}});
  model.group_of = [](std::int64_t place) { return place < 5 ? 0 : 1; };
  const auto found = numbers();
  EXPECT_EQ(found.at("captions"), 1) << "the phrase of the other caption is cut off";
  EXPECT_EQ(found.at("groups_per_caption"), 2);
  EXPECT_EQ(found.at("phrases_per_caption"), 2);
  EXPECT_DOUBLE_EQ(found.at("iou"), 1);
}

TEST_F(TokenGroups, SkipCaptionsThatTheTokensDoNotSpell) {
  source->captions.push_back({"a zebra and a blue square", {"a blue square"}});
  source->captions.push_back({"a square", {}});
  model.group_of = [](std::int64_t place) { return place < 4 ? 0 : 1; };
  const TaskResult result = run();
  EXPECT_EQ(result.samples, 1);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"no_phrases", 1}, {"not_spelled", 1}}));
  EXPECT_DOUBLE_EQ(result.metrics.at(0).second, 1);
  source->captions = {{"a zebra", {"a zebra"}}};
  EXPECT_EQ(error(),
            "token_group_iou: the tokens of no caption of phrases spell its text: is the vocabulary in its "
            "language?");
}

TEST_F(TokenGroups, RejectModelsAndDataWithoutGroups) {
  model.attention = false;
  EXPECT_EQ(
      error(),
      "token_group_iou: this model's text tower has no groups of tokens: take one whose read-out outputs attention, "
      "as groups after text_group_encoder does, or by: k_means");
  source->captions = {{"a square", {}}};
  EXPECT_EQ(error(), "phrases: no sample has a caption with annotated phrases");
}

// As in the paper, all five captions of an image count. The two image files are deliberately unreadable: this checks that the task does not
// need images.
TEST_F(TokenGroups, CountForEveryCaptionWithPhrases) {
  write("pictures/1.jpg", "no picture");
  write("pictures/2.jpg", "no picture");
  write("entities/Sentences/1.txt",
        "[/EN#1/other a red circle] and [/EN#2/other a blue square]\n"
        "[/EN#1/other a circle] and [/EN#2/other a square]\n"
        "[/EN#2/other a blue square] and [/EN#1/other a red circle]\n"
        "a circle and [/EN#0/notvisual a square]\n"
        "[/EN#1/other red circles]\n");
  write("entities/Sentences/2.txt", "a circle\n[/EN#3/other a zebra]\n[/EN#3/other a red circle] and blue\n");
  for (const char* name : {"entities/Annotations/1.xml", "entities/Annotations/2.xml"})
    write(name, "<annotation></annotation>");
  model.group_of = [](std::int64_t place) { return place < 4 ? 0 : place < 5 ? 1 : 2; };
  context.images = true;
  const TaskResult result =
      run(concat("{name: token_group_iou, source: {name: flickr30k, images: ", path("pictures"), ", entities: ", path("entities"), "}}"));
  const std::map<std::string, double> found = by_name(result);
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(found.at("captions"), 5) << "four of the first image, the third of the other";
  EXPECT_EQ(found.at("captions_not_spelled"), 1);
  EXPECT_DOUBLE_EQ(found.at("phrases_per_caption"), 8.0 / 5);
  // All phrases are matched completely, except "a square" in the second caption of the first image: its two words are in different groups.
  EXPECT_DOUBLE_EQ(found.at("iou"), (4 + (1 + 0.5) / 2) / 5);
  EXPECT_DOUBLE_EQ(found.at("recall"), (4 + (1 + 0.5) / 2) / 5);
  EXPECT_DOUBLE_EQ(found.at("precision"), 1);
  EXPECT_TRUE(result.skipped.empty());
  const nlohmann::json sheets = sheets_of(result, "Groups");
  ASSERT_EQ(sheets.size(), 2U) << "one caption per image";
  EXPECT_EQ(sheets[0].at("groups").size(), 9U);
  EXPECT_EQ(sheets[1].at("groups").size(), 7U) << "the caption with the zebra is not shown";
}

TEST_F(TokenGroups, ReadOnlyTheImagesThatAreShown) {
  source->captions.resize(5, source->captions.front());
  source->files = {"no picture", "", "no picture", "no picture"};
  TaskResult result = run();
  EXPECT_EQ(result.samples, 5);
  EXPECT_TRUE(result.skipped.empty());
  EXPECT_EQ(model.images, 0);
  context.images = true;
  result = run("{name: token_group_iou, samples: 5}");
  EXPECT_EQ(result.samples, 5);
  EXPECT_EQ(model.images, 1);
  const nlohmann::json sheets = sheets_of(result, "Groups");
  ASSERT_EQ(sheets.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(sheets[i].at("images").empty());
    EXPECT_EQ(sheets[i].at("groups").size(), 9U);
  }
  EXPECT_FALSE(sheets[4].at("images").empty());
}

TEST_F(TokenGroups, AreShownOverWordsAndPatches) {
  source->captions.resize(5, source->captions.front());
  model.group_of = [](std::int64_t place) { return place < 4 ? 0 : place < 5 ? 1 : 2; };
  context.images = true;
  context.out = folder_.string();
  const TaskResult result = run("{name: token_group_iou, samples: 2}");
  const nlohmann::json sheets = sheets_of(result, "Groups");
  ASSERT_EQ(sheets.size(), 2U);
  const nlohmann::json &tokens = sheets[1].at("groups"), &images = sheets[1].at("images");
  EXPECT_EQ(images.at(0).at("src"), gray_source(20, 32)) << "examples are spread over the data";
  ASSERT_EQ(tokens.size(), 9U) << "padding is not shown";
  EXPECT_EQ(tokens[2].at("text"), " red");
  EXPECT_EQ(tokens[2].at("weights").dump(), "[0.5,0.0,0.0]");
  std::vector<std::int64_t> groups, in_phrase;
  for (const auto& token : tokens) {
    groups.push_back(token.at("group"));
    in_phrase.push_back(token.at("phrase").get<bool>() ? 1 : 0);
  }
  EXPECT_EQ(groups, (std::vector<std::int64_t>{-1, 0, 0, 0, 1, 2, 2, 2, -1}));
  EXPECT_EQ(in_phrase, (std::vector<std::int64_t>{0, 1, 1, 1, 0, 1, 1, 1, 0}));
  // The expected groups of the pixels come from the image tower: the attention to the 4 x 4 patches, upsampled to the pixels.
  const at::Tensor attention = whole.encode_images(at::full({1, 3, 32, 32}, 20, at::kByte), {.attention = true}).attention;
  const at::Tensor pixels = at::upsample_bilinear2d(attention.view({1, 4, 4, 4}).to(at::kDouble), {32, 32}, false);
  const at::Tensor expected = pixels.argmax(1).to(at::kByte).flatten();
  const Image gray{32, 32, std::vector<std::uint8_t>(3 * 32 * 32, 20)};
  EXPECT_EQ(images.at(1).at("mask"), report::mask_part(gray, to_vector<std::uint8_t>(expected), "").at("mask"));
  const auto json = nlohmann::json::parse(io::read_file(context.out + "/token_groups.json"));
  EXPECT_EQ(json.at(1).at("key"), "sample2");
  EXPECT_EQ(json.at(1).at("tokens").at(5).at("group"), 2);
}

}  // namespace
}  // namespace tessera
