#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/objectives/pairs.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

constexpr std::int64_t kCaptionVocabulary = 9, kCaptionLength = 5, kGroupWidth = 4;

/// Captions of 5, 3, 1 and 0 tokens, their groups and global embeddings, and the token table that the decoder shares. Padding
/// holds invalid ids.
struct Captions {
  SharedParameters shared;
  at::Tensor image, text, groups, ids, mask;

  Captions() {
    at::manual_seed(3);
    const auto random = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).requires_grad_(true); };
    shared.token_embedding = random({kCaptionVocabulary, kGroupWidth});
    image = random({4, 6});
    text = random({4, 6});
    groups = random({4, 2, kGroupWidth});
    mask = at::arange(kCaptionLength).unsqueeze(0) < at::tensor({5, 3, 1, 0}, at::kLong).unsqueeze(1);
    ids = at::randint(kCaptionVocabulary, {4, kCaptionLength}, at::kLong).masked_fill(~mask, -7);
  }
  std::shared_ptr<Objective> objective(const std::string& yaml) {
    at::manual_seed(4);
    auto made = objectives().make({"text_group", config::parse_yaml(yaml, "test")}, "objective",
                                  {.embed_dim = 6, .shared = &shared});
    made->to(at::kDouble);
    return made;
  }
  Features features() const {
    Features out;
    out.images["image"].global = image;
    TowerFeatures& caption = out.texts["caption"];
    caption.global = text;
    caption.tokens = groups;
    caption.input = text_input(ids, mask);
    return out;
  }
  std::vector<at::Tensor> leaves(const Objective& objective) const {
    std::vector<at::Tensor> out = objective.parameters();
    out.insert(out.end(), {shared.token_embedding, image, text, groups});
    return out;
  }
};

std::set<std::string> names_of(const Objective& objective) {
  std::set<std::string> out;
  for (const auto& item : objective.named_parameters()) out.insert(item.key());
  return out;
}

TEST(TextGroup, GradientsMatchFiniteDifferences) {
  for (const char* yaml :
       {"{temperature: 0.5, decoder: {context_length: 5, heads: 2}}",
        "{learned_temperature: true, reconstruction_weight: 0.3, reconstruction_reduction: sum, chunk: 3, decoder: "
        "{context_length: 6, layers: 2, activation: quick_gelu}}"}) {
    SCOPED_TRACE(yaml);
    Captions captions;
    const auto objective = captions.objective(yaml);
    std::vector<at::Tensor> leaves = {captions.shared.token_embedding, captions.image, captions.text, captions.groups};
    for (const auto& item : objective->named_parameters())
      if (item.key() == "logit_scale" || item.key() == "decoder.ln_final.weight") leaves.push_back(item.value());
    expect_gradients_match(
        leaves, [&] { return objective->forward(captions.features(), {}).total; }, 1e-5);
  }
}

TEST(TextGroup, ChunksChangeNothing) {
  Captions captions;
  expect_chunks_change_nothing({1, 3, 4, 9}, [&](const std::string& chunk) {
    const auto objective = captions.objective("{" + chunk + "}");
    return loss_and_gradients(objective->forward(captions.features(), {}).total, captions.leaves(*objective));
  });
}

TEST(TextGroup, DisabledLossHasNoTermParametersOrNeeds) {
  Captions captions;
  const auto both = captions.objective("{}"), contrast = captions.objective("{reconstruction_weight: 0}"),
             reconstruction = captions.objective("{contrastive_weight: 0}");
  EXPECT_EQ(terms_of(both->forward(captions.features(), {})).size(), 2u);
  EXPECT_EQ(names_of(*contrast), std::set<std::string>{});
  EXPECT_FALSE(contrast->needs().texts.at("caption").tokens || contrast->needs().texts.at("caption").input_ids);
  EXPECT_TRUE(reconstruction->needs().images.empty());
  EXPECT_TRUE(both->needs().texts.at("caption").tokens && both->needs().texts.at("caption").input_ids);

  Features texts = captions.features();
  texts.images.clear();
  const auto alone = terms_of(reconstruction->forward(texts, {}));
  EXPECT_EQ(alone.size(), 1u);
  Features globals = captions.features();
  globals.texts["caption"].tokens = at::Tensor();
  globals.texts["caption"].input = {};
  const auto contrasted = terms_of(contrast->forward(globals, {}));
  const auto together = terms_of(both->forward(captions.features(), {}));
  EXPECT_DOUBLE_EQ(together.at("loss_contrastive"), contrasted.at("loss_contrastive"));
  EXPECT_DOUBLE_EQ(together.at("loss_reconstruction"), alone.at("loss_reconstruction"));
}

TEST(TextGroup, TemperatureIsFixedUnlessLearned) {
  Captions captions;
  const auto fixed = captions.objective("{temperature: 0.2, reconstruction_weight: 0}"),
             learned = captions.objective("{temperature: 0.2, reconstruction_weight: 0, learned_temperature: true}");
  EXPECT_EQ(names_of(*learned), std::set<std::string>{"logit_scale"});
  EXPECT_NEAR(learned->named_parameters()["logit_scale"].item<double>(), std::log(5.0), 1e-6);
  EXPECT_NEAR(fixed->forward(captions.features(), {}).total.item<double>(),
              learned->forward(captions.features(), {}).total.item<double>(), 1e-6);
  fixed->after_step({});
}

TEST(TextGroup, PaddingHasNoEffect) {
  Captions captions;
  const auto objective = captions.objective("{decoder: {context_length: 5}}");
  const double expected = objective->forward(captions.features(), {}).total.item<double>();
  for (const std::int64_t junk : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 40}) {
    captions.ids = captions.ids.masked_fill(~captions.mask, junk);
    EXPECT_EQ(objective->forward(captions.features(), {}).total.item<double>(), expected);
  }
}

TEST(TextGroup, IgnoresAbsentPairs) {
  Captions captions;
  const auto objective = captions.objective("{skip_absent: true, decoder: {context_length: 5}}");
  Features features = captions.features();
  features.images["image"].present = at::tensor({1, 0, 1, 1}).to(at::kBool);
  const Losses losses = objective->forward(features, {});
  const auto gradient = torch::autograd::grad({losses.total}, {captions.groups, captions.text, captions.image});
  for (const at::Tensor& each : gradient) EXPECT_EQ(each[1].abs().sum().item<double>(), 0);
  EXPECT_GT(gradient[0][0].abs().sum().item<double>(), 0);
}

TEST(TextGroup, CaptionsOfOneTokenHaveNothingToReconstruct) {
  Captions captions;
  captions.ids = captions.ids.slice(1, 0, 1);
  captions.mask = captions.mask.slice(1, 0, 1);
  const auto objective = captions.objective("{contrastive_weight: 0}");
  const at::Tensor loss = objective->forward(captions.features(), {}).total;
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
}

TEST(TextGroup, ReportsMistakes) {
  const auto error = [](const std::string& yaml, SharedParameters* shared) {
    return error_of(
        [&] { objectives().make({"text_group", config::parse_yaml(yaml, "run.yaml")}, "objective", {.shared = shared}); });
  };
  SharedParameters none;
  EXPECT_NE(error("{}", &none)
                .find("objective.reconstruction_weight: captions are decoded with the text encoder's token "
                      "table, but this model has none: set it to 0"),
            std::string::npos);
  EXPECT_NE(error("{contrastive_weight: 0, reconstruction_weight: 0}", &none).find("there is nothing to train on"),
            std::string::npos);
  Captions captions;
  const auto objective = captions.objective("{}");
  Features projected = captions.features();
  projected.texts["caption"].tokens = captions.groups.repeat({1, 1, 2});
  EXPECT_THROW(objective->forward(projected, {}), c10::Error);
  Features words = captions.features();
  words.texts["caption"].mask = at::ones({4, 2}, at::kBool);
  EXPECT_THROW(objective->forward(words, {}), UserError);
}

}  // namespace
}  // namespace tessera
