#include <cmath>
#include <set>

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "src/models/autocast.h"
#include "tests/objectives/pairs.h"

namespace tessera {
namespace {

class ObjectiveProperties : public testing::TestWithParam<ObjectiveCase> {
 protected:
  std::shared_ptr<Objective> make(const std::string& more = "", at::ScalarType dtype = at::kDouble) {
    std::string yaml = GetParam().yaml;
    if (!more.empty()) yaml.insert(1, yaml == "{}" ? more : more + ", ");
    return make_objective(GetParam().name, yaml, 5, dtype);
  }
  static void expect_equal(const Outcome& ours, const Outcome& theirs, double tolerance = 1e-10) {
    EXPECT_TRUE(at::allclose(ours.loss, theirs.loss, tolerance, tolerance)) << ours.loss << " v " << theirs.loss;
    for (std::size_t i = 0; i < ours.gradients.size(); ++i)
      EXPECT_TRUE(at::allclose(ours.gradients[i], theirs.gradients[i], tolerance, tolerance)) << "gradient " << i;
  }
  static bool finite(const Outcome& outcome) {
    bool all = outcome.loss.isfinite().all().item<bool>();
    for (const at::Tensor& gradient : outcome.gradients) all = all && gradient.isfinite().all().item<bool>();
    return all;
  }
};

// The tolerance for equal results. MGCA normalizes its prototypes in each forward pass, so a second pass may differ in the last bit.
constexpr double kSame = 1e-12;

TEST_P(ObjectiveProperties, ChunkChangesNothing) {
  if (GetParam().name == "weighted_sum") GTEST_SKIP() << "chunk is a setting of its objectives";
  const Pairs pairs = random_pairs({3, 1, 0, 2, 3, 2, 1}, 3);
  expect_chunks_change_nothing({1, 3, 7, 100}, [&](const std::string& chunk) {
    const auto objective = make(chunk);
    std::vector<at::Tensor> leaves = pairs.embeddings();
    for (const at::Tensor& parameter : objective->parameters()) leaves.push_back(parameter);
    return loss_and_gradients(objective->forward(pairs.features(), {}).total, leaves);
  });
}

TEST_P(ObjectiveProperties, PaddingHasNoEffectAndNoGradient) {
  const Pairs plain = random_pairs({3, 1, 0, 2}, 4);
  const auto objective = make();
  const Outcome expected = evaluate(*objective, plain);
  for (double junk : {std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    Pairs filled = plain;
    filled.text_tokens = leaf(plain.text_tokens.detach().masked_fill(~plain.text_mask.unsqueeze(-1), junk));
    const Outcome outcome = evaluate(*objective, filled);
    expect_equal(outcome, expected, kSame);
    EXPECT_EQ(outcome.gradients[3].masked_select(~plain.text_mask.unsqueeze(-1)).abs().sum().item<double>(), 0);
  }
}

TEST_P(ObjectiveProperties, MorePaddingChangesNothing) {
  const Pairs plain = random_pairs({3, 1, 0, 2}, 3);
  Pairs longer = plain;
  longer.text_tokens = leaf(at::cat({plain.text_tokens.detach(), at::full({4, 2, 5}, std::nan(""), at::kDouble)}, 1));
  longer.text_mask = at::cat({plain.text_mask, at::zeros({4, 2}, at::kBool)}, 1);
  const auto objective = make();
  Outcome outcome = evaluate(*objective, longer);
  outcome.gradients[3] = outcome.gradients[3].narrow(1, 0, 3);
  expect_equal(outcome, evaluate(*objective, plain));
}

TEST_P(ObjectiveProperties, IsInvariantToTheOrderOfPairs) {
  const Pairs plain = random_pairs({3, 1, 0, 2}, 3);
  const at::Tensor order = at::tensor({2, 0, 3, 1}, at::kLong);
  const auto objective = make();
  Outcome expected = evaluate(*objective, plain);
  for (at::Tensor& gradient : expected.gradients) gradient = gradient.index_select(0, order);
  expect_equal(evaluate(*objective, only(plain, order)), expected);
}

TEST_P(ObjectiveProperties, HolesInTheMaskActLikePaddingAtTheEnd) {
  const Pairs plain = random_pairs({2, 2}, 2);
  Pairs holes = plain;
  holes.text_tokens =
      leaf(at::stack({plain.text_tokens.detach().select(1, 0), at::full({2, 5}, std::nan(""), at::kDouble),
                      plain.text_tokens.detach().select(1, 1)},
                     1));
  holes.text_mask = at::tensor({1, 0, 1, 1, 0, 1}).view({2, 3}).to(at::kBool);
  const auto objective = make();
  EXPECT_TRUE(at::allclose(evaluate(*objective, holes).loss, evaluate(*objective, plain).loss, 1e-10, 1e-12));
}

TEST_P(ObjectiveProperties, IsFiniteForEmptyCaptionsNoTokensAndSinglePairs) {
  const auto objective = make();
  for (const auto& lengths : std::vector<std::vector<std::int64_t>>{{0, 0, 0}, {2}, {0}, {3, 0}}) {
    EXPECT_TRUE(finite(evaluate(*objective, random_pairs(lengths, 3))));
    EXPECT_TRUE(finite(evaluate(*objective, random_pairs(lengths, 3, /*patches=*/1))));
  }
  EXPECT_TRUE(finite(evaluate(*objective, random_pairs({0, 0}, /*words=*/0))));
}

TEST_P(ObjectiveProperties, AcceptsNonContiguousInputs) {
  const Pairs plain = random_pairs({3, 1, 0, 2}, 3);
  Pairs other = map_embeddings(plain, [](const at::Tensor& x) { return x.mT().contiguous().mT(); });
  EXPECT_FALSE(other.text_tokens.is_contiguous());
  other.text_mask = plain.text_mask.t().contiguous().t();
  const auto objective = make();
  expect_equal(evaluate(*objective, other), evaluate(*objective, plain));
}

TEST_P(ObjectiveProperties, LossIgnoresAutocast) {
  const Pairs pairs = random_pairs({3, 1, 2}, 3, 4, 5, at::kFloat);
  const auto objective = make("", at::kFloat);
  const Outcome expected = evaluate(*objective, pairs);
  const auto loss = [&] {
    const Autocast autocast(at::kCPU);
    return objective->forward(pairs.features(), {}).total;
  }();
  const Outcome outcome = differentiate(loss, pairs);  // as in training, the backward pass runs outside of autocast
  expect_equal(outcome, expected, 1e-5);
  EXPECT_EQ(outcome.loss.scalar_type(), at::kFloat);
}

TEST_P(ObjectiveProperties, HasAFloatLossForHalfPrecisionFeatures) {
  const Pairs pairs = random_pairs({3, 1, 2}, 3, 4, 5, at::kFloat);
  const auto objective = make("", at::kFloat);
  const Pairs halves = map_embeddings(pairs, [](const at::Tensor& x) { return x.to(at::kBFloat16); });
  const Pairs rounded = map_embeddings(halves, [](const at::Tensor& x) { return x.to(at::kFloat); });
  const at::Tensor loss = evaluate(*objective, halves).loss;
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  // SPARC also rounds its grouped tokens to bfloat16, so it needs a larger tolerance.
  const double tolerance = GetParam().name == "sparc" ? 1e-2 : 1e-5;
  EXPECT_TRUE(at::allclose(loss, evaluate(*objective, rounded).loss, tolerance, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(All, ObjectiveProperties, testing::ValuesIn(all_objectives()), label_of);

/// While it exists, records the types of the tokens that the forward kernel of sparsify_group receives.
class KernelTypes {
 public:
  KernelTypes() {
    types().clear();
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&KernelTypes::note).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~KernelTypes() { at::removeCallback(handle_); }
  static std::set<at::ScalarType>& types() {
    static std::set<at::ScalarType> all;
    return all;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    if (function.name() == std::string("tessera::_sparsify_group"))
      for (const at::IValue& input : function.inputs())
        if (input.isTensor() && input.toTensor().is_floating_point() && input.toTensor().dim() == 3)
          types().insert(input.toTensor().scalar_type());
    return nullptr;
  }
  at::CallbackHandle handle_;
};

// Similarities, thresholds and losses are computed in float32. Only grouped tokens and their gradients are rounded to bfloat16.
TEST(SparcInBfloat16, PassesBfloat16TokensToTheKernelWithSmallErrors) {
  constexpr std::int64_t kSparcWidth = 64;
  const Pairs random = random_pairs({12, 3, 7, 1, 12, 5, 9, 2}, 12, 20, kSparcWidth, at::kFloat);
  for (const char* yaml : {"{}", "{chunk: 3}", "{weights: softmax}"}) {
    const auto objective = make_objective("sparc", yaml, kSparcWidth, at::kFloat);
    const auto outcome_in = [&](at::ScalarType type) {
      return evaluate(*objective, map_embeddings(random, [&](const at::Tensor& x) { return x.to(at::kBFloat16).to(type); }));
    };
    const Outcome exact = outcome_in(at::kFloat);
    const KernelTypes seen;
    const Outcome ours = outcome_in(at::kBFloat16);
    EXPECT_EQ(seen.types(), std::set<at::ScalarType>{at::kBFloat16}) << yaml;
    EXPECT_NEAR(ours.loss.item<double>(), exact.loss.item<double>(), 2e-3 * exact.loss.item<double>()) << yaml;
    for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
      EXPECT_EQ(ours.gradients[i].scalar_type(), at::kBFloat16);
      const double off = (ours.gradients[i].to(at::kFloat) - exact.gradients[i]).norm().item<double>();
      EXPECT_LE(off, 1e-2 * exact.gradients[i].norm().item<double>()) << yaml << ", gradient " << i;
    }
  }
}

TEST(LogitScale, StartsAtLogOfOneOver007AndIsClampedUnlessFrozen) {
  const auto clip = make_objective("clip", "{}", 5, at::kFloat);
  at::Tensor scale = clip->named_parameters()["logit_scale"];
  EXPECT_FLOAT_EQ(scale.item<float>(), static_cast<float>(std::log(1 / 0.07)));
  const at::NoGradGuard no_grad;
  scale.fill_(7);
  clip->after_step({});
  EXPECT_FLOAT_EQ(scale.item<float>(), static_cast<float>(std::log(100.0)));
  scale.fill_(-1);
  clip->after_step({});
  EXPECT_EQ(scale.item<float>(), 0);
  scale.set_requires_grad(false).fill_(7);
  clip->after_step({});
  EXPECT_EQ(scale.item<float>(), 7);
}

std::string settings_error(const std::string& name, const std::string& yaml) {
  return error_of([&] { make_objective(name, yaml); });
}

TEST(ObjectiveSettings, ErrorsNameTheMistake) {
  EXPECT_EQ(settings_error("weighted_sum", "{objectives: []}"),
            "test:1: weighted_sum.objectives: is empty: name at least one objective");
  EXPECT_EQ(settings_error("weighted_sum", "{objectives: [{name: clip}, {name: clip}]}"),
            "test:1: weighted_sum.objectives: label clip is used twice: give each objective its own label");
  EXPECT_NE(
      settings_error("weighted_sum", "{objectives: [{name: clpi}]}").find("unknown objective clpi: did you mean clip?"),
      std::string::npos);
  EXPECT_NE(
      settings_error("weighted_sum", "{objectives: [{name: clip, settings: {chnk: 3}}]}").find("did you mean chunk?"),
      std::string::npos);
  EXPECT_EQ(settings_error("weighted_sum", "{objectives: [{name: clip, chunk: 7, settings: {chunk: 4}}]}"),
            "test:1: weighted_sum.objectives[0].settings.chunk: is also set outside of settings: remove one of the two");
  EXPECT_NE(settings_error("weighted_sum", "{objectives: [{name: clip, settings: {weight: 3}}]}").find("objectives[0].weight"),
            std::string::npos);
  EXPECT_EQ(settings_error("mgca", "{attention_heads: 3, attention_dim: 4}"),
            "test:1: mgca.attention_heads: must divide attention_dim 4, got 3");
  EXPECT_EQ(settings_error("filip", "{token_drop_rate: 1}"),
            "test:1: filip.token_drop_rate: expected at least 0 and below 1, got 1");
  EXPECT_NE(settings_error("pacl", "{embedder_residual: identity, image_width: 3}")
                .find("identity needs image_width equal to embed_dim"),
            std::string::npos);
  EXPECT_NE(settings_error("clip", "{chunk: 0}").find("expected at least 1, got 0"), std::string::npos);
}

template <class Error>
std::string input_error(const std::string& name, const Pairs& pairs) {
  return error_of<Error>([&] { make_objective(name, "{}")->forward(pairs.features(), {}); });
}

TEST(ObjectiveInputs, ErrorForMissingFeaturesNamesTheSetting) {
  Pairs bad = random_pairs({2, 1}, 2);
  bad.text_global = at::Tensor();
  EXPECT_EQ(input_error<UserError>("sparc", bad),
            "objective sparc needs one embedding per text (text_global), which the text tower does not output: set "
            "model.text.readout to gap or another that does (none is only for objectives that read tokens)");
  bad.image_tokens = at::Tensor();
  EXPECT_EQ(input_error<UserError>("filip", bad),
            "objective filip needs image_tokens, which the image tower does not output: set another model.image.encoder");
}

TEST(ObjectiveInputs, ErrorForWrongShapesNamesTheTensor) {
  const Pairs good = random_pairs({2, 1}, 2);
  Pairs bad = good;
  bad.text_global = at::randn({3, 5}, at::kDouble);
  EXPECT_EQ(input_error<c10::Error>("clip", bad), "clip: text_global must be [B, D] = [2, 5], got [3, 5]");
  bad = good;
  bad.image_tokens = at::randn({2, 4, 6}, at::kDouble);
  EXPECT_EQ(input_error<c10::Error>("sparc", bad), "sparc: image_tokens must be [B, P, D] = [2, P, 5], got [2, 4, 6]");
  bad = good;
  bad.image_tokens = at::randn({2, 0, 5}, at::kDouble);
  EXPECT_EQ(input_error<c10::Error>("filip", bad), "filip: image_tokens must hold at least one patch, got [2, 0, 5]");
  bad = good;
  bad.text_mask = at::ones({2, 3}, at::kBool);
  EXPECT_EQ(input_error<c10::Error>("gloria", bad), "gloria: text_mask must be [B, L] = [2, 2], got [2, 3]");
  bad.text_mask = at::ones({2, 2});
  EXPECT_EQ(input_error<c10::Error>("mgca", bad), "mgca: text_mask must be bool, got Float");
  bad = good;
  bad.image_tokens = at::randn({2, 4, 6}, at::kDouble);
  EXPECT_EQ(input_error<UserError>("pacl", bad), "objective pacl: image_tokens must be [B, P, W] with W = image_width = 5, got [2, 4, 6]");
  bad = good;
  bad.image_global = at::randn({2, 1, 5}, at::kDouble);
  EXPECT_EQ(input_error<c10::Error>("clip", bad), "clip: image_global must be [B, D], got [2, 1, 5]");
  bad.image_global = at::randn({0, 5}, at::kDouble);
  EXPECT_EQ(input_error<c10::Error>("clip", bad), "clip: image_global holds no pair, got [0, 5]");
}

// Compares the loss with algorithm 1 of Zhai et al. 2023.
TEST(Siglip, MatchesThePaper) {
  const Pairs pairs = random_pairs({2, 1, 3}, 3);
  const auto siglip = make_objective("siglip", "{}");
  EXPECT_DOUBLE_EQ(siglip->named_parameters()["logit_bias"].item<double>(), -10);
  EXPECT_NEAR(siglip->named_parameters()["logit_scale"].item<double>(), std::log(10.0), 1e-6);
  const at::Tensor image = pairs.image_global / pairs.image_global.norm(2, -1, true);
  const at::Tensor text = pairs.text_global / pairs.text_global.norm(2, -1, true);
  const at::Tensor logits = at::matmul(image, text.t()) * 10 - 10;
  const at::Tensor labels = 2 * at::eye(3, at::kDouble) - 1;
  const at::Tensor loss = -at::log_sigmoid(labels * logits).sum() / 3;
  const Losses losses = siglip->forward(pairs.features(), {});
  EXPECT_NEAR(losses.total.item<double>(), loss.item<double>(), 1e-6);
  EXPECT_EQ(losses.terms[0].first, "loss_positive");
  EXPECT_NEAR(losses.terms[1].second.item<double>(),
              loss.item<double>() + at::log_sigmoid(logits.diagonal()).mean().item<double>(), 1e-6);
}

TEST(Filip, DropsNothingInEvaluation) {
  const Pairs pairs = random_pairs({4, 2, 3}, 4, 6);
  const at::Tensor kept =
      make_objective("filip", "{token_drop_rate: 0.5}")->forward(pairs.features(), {.training = false}).total;
  EXPECT_TRUE(at::equal(kept, make_objective("filip", "{token_drop_rate: 0}")->forward(pairs.features(), {}).total));
}

}  // namespace
}  // namespace tessera
