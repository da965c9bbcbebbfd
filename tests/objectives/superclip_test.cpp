#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/objectives/superclip.h"
#include "tests/objectives/checks.h"

namespace tessera {
namespace {

constexpr std::int64_t kWords = 20, kPatchWidth = 6;

at::Tensor numbers(std::vector<std::int64_t> values) {
  return at::tensor(values, at::kLong);
}

std::vector<std::int64_t> listed(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

std::vector<std::int64_t> bag(const WordBags& bags, std::int64_t image) {
  return listed(bags.ids[image].masked_select(bags.used[image]));
}

/// Images with captions of 1 to 7 words between the start token (18) and the end token (19). Padding holds invalid ids.
struct CaptionedImages {
  at::Tensor patches, ids, mask;

  explicit CaptionedImages(std::int64_t batch = 6, std::uint64_t seed = 5) {
    at::manual_seed(seed);
    patches = at::randn({batch, 4, kPatchWidth}, at::kDouble).requires_grad_(true);
    const at::Tensor length = at::arange(batch).remainder(7).add(3);
    ids = at::randint(18, {batch, 9}, at::kLong);
    ids.select(1, 0).fill_(18);
    ids.scatter_(1, (length - 1).unsqueeze(1), 19);
    mask = at::arange(9).unsqueeze(0) < length.unsqueeze(1);
    ids.masked_fill_(~mask, 1 << 30);
  }
  TowerInput captions() const { return text_input(ids, mask); }
  Features features() const {
    Features out;
    out.images["image"].encoder_tokens = patches;
    out.texts["caption"].input = captions();
    return out;
  }
  Batch batch() const {
    Batch out;
    out.texts["caption"] = captions();
    return out;
  }
  CaptionedImages part(std::int64_t first, std::int64_t count) const {
    CaptionedImages out = *this;
    for (at::Tensor* tensor : {&out.patches, &out.ids, &out.mask}) *tensor = tensor->narrow(0, first, count);
    return out;
  }
};

std::shared_ptr<Objective> make_superclip(const std::string& yaml = "{}", const std::string& name = "superclip") {
  at::manual_seed(3);
  auto made = objectives().make({name, config::parse_yaml(yaml, "test")}, "objective",
                                {.embed_dim = 4, .image_width = kPatchWidth, .vocab_size = kWords});
  made->to(at::kDouble);
  return made;
}

std::int64_t captions_of(const Objective& objective) {
  return objective.named_buffers()["caption_count"].item<std::int64_t>();
}

at::Tensor documents_of(const Objective& objective) {
  return objective.named_buffers()["document_count"].clone();
}

TEST(WordBags, AreTheSetsOfTheIdsAtRealPositions) {
  const at::Tensor ids = at::stack({numbers({5, 3, 5, 3}), numbers({7, 999, -4, 7}), numbers({-1, -1, -1, -1})});
  const at::Tensor mask = at::stack({numbers({1, 1, 1, 1}), numbers({1, 0, 0, 1}), numbers({0, 0, 0, 0})}).to(at::kBool);
  const WordBags bags = word_bags(ids, mask, 10, {});
  EXPECT_EQ(bag(bags, 0), (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(bag(bags, 1), (std::vector<std::int64_t>{7}));
  EXPECT_TRUE(bag(bags, 2).empty());
  EXPECT_EQ(listed(count_words(bags)), (std::vector<std::int64_t>{0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 3}));
}

TEST(WordBags, OfSeveralCaptionsAreTheirUnionPerImage) {
  const at::Tensor ids = at::stack({numbers({5, 3, 0}), numbers({3, 8, 0})}).unsqueeze(0);
  const at::Tensor mask = at::stack({numbers({1, 1, 0}), numbers({1, 1, 0})}).to(at::kBool).unsqueeze(0);
  const WordBags bags = word_bags(ids, mask, 10, {});
  EXPECT_EQ(bag(bags, 0), (std::vector<std::int64_t>{3, 5, 8}));
  EXPECT_EQ(listed(count_words(bags)), (std::vector<std::int64_t>{0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1}));
}

TEST(WordBags, IgnoredIdsEnterNeitherBagsNorCounts) {
  const WordBags bags = word_bags(numbers({1, 2, 3, 2}).unsqueeze(0), {}, 5, {2, 1});
  EXPECT_EQ(bag(bags, 0), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(listed(count_words(bags)), (std::vector<std::int64_t>{0, 0, 0, 1, 0, 1}));
}

TEST(WordBags, OfCaptionsWithoutPositionsAreEmpty) {
  const WordBags bags = word_bags(at::empty({2, 0}, at::kLong), {}, 5, {});
  EXPECT_TRUE(bag(bags, 0).empty());
  EXPECT_EQ(count_words(bags)[5].item<std::int64_t>(), 2);
}

TEST(WordBags, ErrorNamesAnIdOutsideTheVocabulary) {
  EXPECT_EQ(message_of([] { word_bags(numbers({1, 7, 2}).unsqueeze(0), {}, 5, {}); }),
            "superclip: a caption holds the id 7, but the vocabulary is 0..4");
  EXPECT_EQ(message_of([] { word_bags(numbers({1, -2}).unsqueeze(0), {}, 5, {}); }),
            "superclip: a caption holds the id -2, but the vocabulary is 0..4");
  EXPECT_EQ(message_of([] { word_bags(numbers({1, 2}), {}, 5, {}); }),
            "superclip: text_ids must be int64 [B, L] or [B, K, L], got Long [2]");
}

// In float64, the quotients of these counts would round to 1 and all weights to 0.
TEST(WordWeights, AreExactForCountsBeyond53Bits) {
  constexpr std::int64_t kMany = (std::int64_t{1} << 60) + 1;
  const WordBags bags = word_bags(numbers({0, 1, 2}).unsqueeze(0), {}, 3, {});
  const at::Tensor weights =
      word_weights(bags, numbers({kMany, kMany - 1, kMany - 3}), at::full({}, kMany, at::kLong), /*idf=*/true);
  EXPECT_EQ(weights[0][0].item<double>(), 0.0);
  EXPECT_NEAR(weights[0][1].item<double>(), 0.25, 1e-12);
  EXPECT_NEAR(weights[0][2].item<double>(), 0.75, 1e-12);
}

TEST(WordWeights, AreZeroForWordsThatAllImagesHave) {
  const WordBags bags = word_bags(at::stack({numbers({0, 1}), numbers({0, 0})}), {}, 2, {});
  const at::Tensor weights = word_weights(bags, numbers({7, 3}), at::full({}, 7, at::kLong), /*idf=*/true);
  EXPECT_EQ(weights[0][1].item<double>(), 1.0);
  EXPECT_EQ(weights[1].sum().item<double>(), 0.0);
}

TEST(SuperClip, ChunkChangesNothing) {
  const CaptionedImages images;
  expect_chunks_change_nothing({1, 7, 20, 1000}, [&](const std::string& chunk) {
    const auto objective = make_superclip("{layers: 1, " + chunk + "}");
    std::vector<at::Tensor> leaves = objective->parameters();
    leaves.push_back(images.patches);
    return loss_and_gradients(objective->forward(images.features(), {}).total, leaves);
  });
}

TEST(SuperClip, CountsEachBatchOnceBeforeWeighingWords) {
  const CaptionedImages images;
  const auto objective = make_superclip();
  objective->forward(images.features(), {});
  EXPECT_EQ(captions_of(*objective), 6);
  EXPECT_EQ(documents_of(*objective)[18].item<std::int64_t>(), 6);
  objective->forward(images.features(), {});
  EXPECT_EQ(captions_of(*objective), 12);
}

TEST(SuperClip, EvaluationUsesButDoesNotChangeCounts) {
  const CaptionedImages images;
  const auto objective = make_superclip();
  const StepContext evaluation{.training = false};
  EXPECT_EQ(objective->forward(images.features(), evaluation).total.item<double>(), 0) << "nothing has been counted";
  const double trained = objective->forward(images.features(), {}).total.item<double>();
  EXPECT_GT(trained, 0);
  EXPECT_EQ(objective->forward(images.features(), evaluation).total.item<double>(), trained);
  EXPECT_EQ(captions_of(*objective), 6);
}

// With gradient accumulation, the counts equal those of the whole batch, and the mean of the losses equals the whole batch's loss.
TEST(SuperClip, AccumulationCountsAllBatchesBeforeTheFirst) {
  const CaptionedImages images;
  for (const char* name : {"superclip", "weighted_sum"}) {
    const bool sum = std::string(name) == "weighted_sum";
    const std::string yaml = sum ? "{objectives: [{name: superclip, weight: 1}]}" : "{}";
    const std::string prefix = sum ? "objectives.superclip." : "";
    const auto whole = make_superclip(yaml, name), parts = make_superclip(yaml, name);
    const double expected = whole->forward(images.features(), {}).total.item<double>();
    ASSERT_TRUE(parts->looks_ahead());
    const Batch first = images.part(0, 2).batch(), second = images.part(2, 2).batch(), third = images.part(4, 2).batch();
    parts->before_step({&first, &second, &third}, {});
    const StepContext counted{.counted = true};
    double mean = 0;
    for (const std::int64_t begin : {0, 2, 4})
      mean += parts->forward(images.part(begin, 2).features(), counted).total.item<double>() / 3;
    EXPECT_NEAR(mean, expected, 1e-12);
    for (const char* buffer : {"document_count", "caption_count"})
      EXPECT_TRUE(at::equal(parts->named_buffers()[prefix + buffer], whole->named_buffers()[prefix + buffer])) << buffer;
  }
}

TEST(SuperClip, ImageWithoutWordsAddsNoLossButCounts) {
  CaptionedImages images;
  const auto objective = make_superclip();
  objective->forward(images.features(), {});
  const StepContext evaluation{.training = false};
  const double of_all = objective->forward(images.features(), evaluation).total.item<double>() * 6,
               of_first = objective->forward(images.part(0, 1).features(), evaluation).total.item<double>();
  images.mask[0].fill_(false);
  Losses losses = objective->forward(images.features(), evaluation);
  EXPECT_NEAR(losses.total.item<double>() * 6, of_all - of_first, 1e-12);
  const auto gradient = torch::autograd::grad({losses.total}, {images.patches})[0];
  EXPECT_EQ(gradient[0].abs().sum().item<double>(), 0);
  EXPECT_GT(gradient[1].abs().sum().item<double>(), 0);
  EXPECT_NEAR(losses.statistics[1].second.item<double>(), 1.0 / 6, 1e-7);
  objective->forward(images.features(), {});
  EXPECT_EQ(captions_of(*objective), 12);
}

TEST(SuperClip, PaddedPatchesHaveNoEffect) {
  const CaptionedImages images;
  const auto objective = make_superclip();
  Features features = images.features();
  TowerFeatures& image = features.images["image"];
  image.mask = at::arange(4).unsqueeze(0).expand({6, 4}) < 3;
  const double masked = objective->forward(features, {}).total.item<double>();
  image.encoder_tokens = images.patches.detach().clone();
  image.encoder_tokens.select(1, 3).fill_(std::nan(""));
  const StepContext evaluation{.training = false};
  EXPECT_EQ(objective->forward(features, evaluation).total.item<double>(), masked);
}

TEST(SuperClip, CountsAreNeverCast) {
  const auto objective = make_superclip();
  constexpr std::int64_t kOdd = (std::int64_t{1} << 55) + 1;
  objective->named_buffers()["document_count"].fill_(kOdd);
  objective->named_buffers()["caption_count"].fill_(kOdd);
  objective->to(at::kFloat);
  objective->to(at::kCPU, at::kBFloat16);
  for (const char* name : {"document_count", "caption_count"}) {
    const at::Tensor counts = objective->named_buffers()[name];
    EXPECT_EQ(counts.scalar_type(), at::kLong);
    EXPECT_TRUE(counts.eq(kOdd).all().item<bool>()) << name;
  }
  EXPECT_EQ(objective->parameters()[0].scalar_type(), at::kBFloat16);
}

TEST(SuperClip, RejectsSizesThatDifferFromTheModel) {
  const auto error = [](const std::string& yaml, const ObjectiveContext& context) {
    return message_of([&] { objectives().make({"superclip", config::parse_yaml(yaml, "test")}, "objective", context); });
  };
  const ObjectiveContext model{.image_width = 6, .vocab_size = 20};
  EXPECT_EQ(error("{width: 8}", model),
            "objective.width is 8, but the image encoder's tokens are 6 wide: leave it out");
  EXPECT_EQ(error("{vocab_size: 8}", model),
            "objective.vocab_size is 8, but the text encoder has 20 token ids: leave it out to follow the text encoder");
  EXPECT_EQ(error("{ignored_ids: [20]}", model), "objective.ignored_ids: 20 is not in the vocabulary 0..19");
  EXPECT_EQ(error("{}", {.vocab_size = 20}),
            "objective.width: the model does not report the width of the image encoder's tokens: set it");
  EXPECT_EQ(error("{}", {.image_width = 6}),
            "objective.vocab_size: the model has no text encoder with a vocabulary: set it");
  EXPECT_EQ(error("{vocab_size: 24}", model), "no error");
}

}  // namespace
}  // namespace tessera
