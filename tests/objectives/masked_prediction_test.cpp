#include <cmath>

#include <gtest/gtest.h>

#include "src/measure/pass_cost.h"
#include "src/objectives/dino.h"
#include "tests/support/gradcheck.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::int64_t kEncoderWidth = 4, kPatches = 6, kOutputs = 5;

struct MaskedCase {
  std::string yaml;
  std::shared_ptr<Objective> student, teacher;
  Features features;

  explicit MaskedCase(const std::string& more = "", std::int64_t batch = 3, at::ScalarType dtype = at::kDouble)
      : yaml("{crops: 2, out_dim: 5, hidden_dim: 5, bottleneck_dim: 3" + (more.empty() ? "" : ", " + more) + "}"),
        student(make(7, dtype)),
        teacher(make(8, dtype)) {
    at::manual_seed(1);
    for (const char* view : {"global_0", "global_1"}) {
      features.images[view].encoder_tokens = at::randn({batch, kPatches, kEncoderWidth}, dtype).requires_grad_(true);
      features.images[view].extras["hidden"] = at::rand({batch, kPatches}).argsort(std::int64_t{1}) < kPatches / 2;
      features.teacher_images[view].encoder_tokens = at::randn({batch, kPatches, kEncoderWidth}, dtype);
    }
  }

  std::shared_ptr<Objective> make(std::uint64_t seed, at::ScalarType dtype) const {
    at::manual_seed(seed);
    auto out = objectives().make({"masked_prediction", config::parse_yaml(yaml, "test")}, "objective",
                                 {.embed_dim = 9, .image_width = kEncoderWidth});
    out->to(dtype);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : out->parameters())
      if (parameter.requires_grad()) parameter.normal_();
    return out;
  }
  Losses forward(StepContext context = {}) {
    context.teacher = teacher.get();
    return student->forward(features, context);
  }
  at::Tensor center() const { return student->named_buffers()["loss.center"]; }
  static at::Tensor logits(Objective& objective, const at::Tensor& row) {
    return std::dynamic_pointer_cast<DinoHead>(objective.named_modules()["head"])->forward(row.unsqueeze(0)).squeeze(0);
  }
};

// Returns the loss of iBOT's eq. 2, computed patch by patch.
double cross_entropy_by_hand(MaskedCase& each, bool all_patches) {
  double sum = 0;
  std::int64_t count = 0;
  for (const char* view : {"global_0", "global_1"}) {
    const TowerFeatures& seen = each.features.images.at(view);
    const at::Tensor& whole = each.features.teacher_images.at(view).encoder_tokens;
    for (std::int64_t b = 0; b < seen.extras.at("hidden").size(0); ++b)
      for (std::int64_t n = 0; n < kPatches; ++n) {
        if (!all_patches && !seen.extras.at("hidden")[b][n].item<bool>()) continue;
        const at::Tensor goal = MaskedCase::logits(*each.teacher, whole[b][n]) - each.center().squeeze(0);
        const at::Tensor made = MaskedCase::logits(*each.student, seen.encoder_tokens[b][n]);
        sum -= (goal / 0.04).softmax(0).dot((made / 0.1).log_softmax(0)).item<double>();
        ++count;
      }
  }
  return sum / static_cast<double>(count);
}

TEST(MaskedPrediction, LossIsTheMeanCrossEntropyOfHiddenPatches) {
  for (const bool all : {false, true}) {
    MaskedCase each(all ? "all_patches: true" : "");
    each.center().copy_(at::randn({1, kOutputs}, at::kDouble));
    const double goal = cross_entropy_by_hand(each, all);
    EXPECT_NEAR(each.forward().total.item<double>(), goal, 1e-9) << all;
  }
}

TEST(MaskedPrediction, ChunksChangeNothing) {
  MaskedCase whole("chunk: null"), tiled("chunk: 4");
  whole.forward().total.backward();
  tiled.forward().total.backward();  // the backward pass over the tiles runs after the center has moved
  const double still = whole.forward({.training = false}).total.item<double>();
  EXPECT_EQ(whole.forward().total.item<double>(), still) << "the center moves after the loss";
  for (const char* view : {"global_0", "global_1"})
    EXPECT_TRUE(at::allclose(whole.features.images.at(view).encoder_tokens.grad(),
                             tiled.features.images.at(view).encoder_tokens.grad(), 1e-10, 1e-12));
  const auto expected = whole.student->named_parameters(), found = tiled.student->named_parameters();
  for (const auto& item : expected) {
    if (!item.value().requires_grad()) continue;
    EXPECT_TRUE(at::allclose(item.value().grad(), found[item.key()].grad(), 1e-10, 1e-12)) << item.key();
  }
}

TEST(MaskedPrediction, GradientsMatchFiniteDifferences) {
  for (const char* more : {"", "chunk: 4, all_patches: true, norm_last_layer: false"}) {
    SCOPED_TRACE(more);
    MaskedCase each(more, 2);
    const StepContext still{.training = false};  // otherwise each call would move the center
    std::vector<at::Tensor> leaves;
    for (auto& [name, view] : each.features.images) leaves.push_back(view.encoder_tokens);
    for (const at::Tensor& parameter : each.student->parameters())
      if (parameter.requires_grad()) leaves.push_back(parameter);
    expect_gradients_match(leaves, [&] { return each.forward(still).total; }, 1e-5);
  }
}

TEST(MaskedPrediction, VisiblePatchesAndTeacherGetNoGradient) {
  MaskedCase each;
  for (auto& [name, view] : each.features.teacher_images) view.encoder_tokens.requires_grad_(true);
  each.forward().total.backward();
  for (const auto& [name, view] : each.features.images) {
    EXPECT_EQ(view.encoder_tokens.grad().masked_select(~view.extras.at("hidden").unsqueeze(2)).abs().sum().item<double>(), 0);
    EXPECT_GT(view.encoder_tokens.grad().abs().sum().item<double>(), 0);
  }
  for (const auto& [name, view] : each.features.teacher_images) EXPECT_FALSE(view.encoder_tokens.grad().defined());
  for (const auto& item : each.teacher->named_parameters()) EXPECT_FALSE(item.value().grad().defined()) << item.key();
}

TEST(MaskedPrediction, CenterFollowsTheTeacherLogitsOfComparedPatches) {
  MaskedCase each("center_momentum: 0.8");
  const at::Tensor start = at::randn({1, kOutputs}, at::kDouble);
  each.center().copy_(start);
  std::vector<at::Tensor> rows;
  for (const char* view : {"global_0", "global_1"}) {
    const at::Tensor& hidden = each.features.images.at(view).extras.at("hidden");
    const at::Tensor chosen = each.features.teacher_images.at(view).encoder_tokens.index({hidden});
    for (std::int64_t i = 0; i < chosen.size(0); ++i) rows.push_back(MaskedCase::logits(*each.teacher, chosen[i]));
  }
  each.forward({.training = false});
  EXPECT_TRUE(at::equal(each.center(), start)) << "evaluation does not change the center";
  each.forward();
  EXPECT_TRUE(at::allclose(each.center(), 0.8 * start + 0.2 * at::stack(rows).mean(0, true)));
}

TEST(MaskedPrediction, NeedsHiddenPatchesAndATeacher) {
  MaskedCase each("share: 0.3, shape: blocks");
  const ViewNeeds& view = each.student->needs().images.at("global_1");
  EXPECT_TRUE(view.student && view.teacher && view.encoder_tokens);
  EXPECT_EQ(view.hidden, (HiddenPatches{.share = 0.3, .blocks = true}));
  EXPECT_THROW(MaskedCase("share: 0"), UserError);
  EXPECT_THROW(each.student->forward(each.features, {}), c10::Error) << "without a teacher";
  each.features.images.at("global_0").extras["hidden"] = at::Tensor();
  EXPECT_THROW(each.forward(), c10::Error);
}

TEST(MaskedPrediction, MemoryIsBoundedByTheChunk) {
  const auto peak = [](const std::string& chunk) {
    const std::string sizes = "{out_dim: 8192, hidden_dim: 8, bottleneck_dim: 8, chunk: " + chunk + "}";
    const auto make = [&] {
      return objectives().make({"masked_prediction", config::parse_yaml(sizes, "test")}, "objective", {.image_width = 4});
    };
    const auto student = make(), teacher = make();
    Features features;
    TowerFeatures& view = features.images["global_0"];
    view.encoder_tokens = at::randn({32, 64, 4}).requires_grad_(true);
    view.extras["hidden"] = at::arange(64).expand({32, 64}) < 32;
    features.teacher_images["global_0"].encoder_tokens = at::randn({32, 64, 4});
    return MemoryTrace::of([&] { student->forward(features, {.teacher = teacher.get()}).total.backward(); }).peak();
  };
  EXPECT_LT(4 * peak("128"), peak("null"));
}

TEST(SelfDistillation, IsDinoWithOnlyLocalCropsForTheStudent) {
  const auto make = [](const char* name, const char* yaml) {
    at::manual_seed(3);
    return objectives().make({name, config::parse_yaml(yaml, "test")}, "objective", {.embed_dim = kEncoderWidth});
  };
  const char* sizes = "{local_crops: 2, out_dim: 5, hidden_dim: 5, bottleneck_dim: 3}";
  const auto ours = make("self_distillation", sizes);
  const auto dino = make("dino",
                         "{global_crops: 1, local_crops: 2, student_global_crops: false, out_dim: 5, hidden_dim: 5, "
                         "bottleneck_dim: 3}");
  EXPECT_FALSE(ours->needs().images.at("global_0").student) << "only the teacher sees it";
  Features features;
  for (const char* view : {"local_0", "local_1"}) features.images[view].global = at::randn({3, kEncoderWidth});
  features.teacher_images["global_0"].global = at::randn({3, kEncoderWidth});
  EXPECT_EQ(ours->forward(features, {.teacher = ours.get()}).total.item<double>(),
            dino->forward(features, {.teacher = dino.get()}).total.item<double>());
  EXPECT_EQ(ours->teacher_momentum({.step = 5, .total_steps = 10}), 0.966);
}

Features spread_case(at::ScalarType dtype = at::kDouble) {
  at::manual_seed(2);
  Features out;
  for (const char* view : {"global_0", "global_1"}) out.images[view].global = at::randn({5, 3}, dtype).requires_grad_(true);
  return out;
}

std::shared_ptr<Objective> make_koleo() {
  return objectives().make({"koleo", {}}, "objective", {.embed_dim = 3});
}

TEST(Koleo, LossIsTheNegativeMeanLogOfNearestDistances) {
  const Features features = spread_case();
  double goal = 0;
  for (const auto& [name, view] : features.images)
    for (std::int64_t i = 0; i < 5; ++i) {
      double nearest = 4;
      for (std::int64_t j = 0; j < 5; ++j) {
        if (i == j) continue;
        const at::Tensor a = view.global[i] / view.global[i].norm(), b = view.global[j] / view.global[j].norm();
        nearest = std::min(nearest, (a - b).norm().item<double>());
      }
      goal -= std::log(nearest) / 5;
    }
  EXPECT_NEAR(make_koleo()->forward(features, {}).total.item<double>(), goal, 1e-7);
}

TEST(Koleo, GradientsMatchFiniteDifferences) {
  const Features features = spread_case();
  std::vector<at::Tensor> leaves;
  for (const auto& [name, view] : features.images) leaves.push_back(view.global);
  const auto koleo = make_koleo();
  expect_gradients_match(leaves, [&] { return koleo->forward(features, {}).total; }, 1e-5);
}

TEST(Koleo, IsFiniteForEqualImagesAndASingleImage) {
  Features features = spread_case();
  for (auto& [name, view] : features.images) view.global = at::ones({4, 3}, at::kDouble).requires_grad_(true);
  const at::Tensor loss = make_koleo()->forward(features, {}).total;
  loss.backward();
  EXPECT_TRUE(std::isfinite(loss.item<double>()));
  for (const auto& [name, view] : features.images) EXPECT_TRUE(at::isfinite(view.global.grad()).all().item<bool>());
  for (auto& [name, view] : features.images) view.global = at::ones({1, 3}, at::kDouble).requires_grad_(true);
  EXPECT_EQ(make_koleo()->forward(features, {}).total.item<double>(), 0);
}

}  // namespace
}  // namespace tessera
