#include <gtest/gtest.h>

#include "src/measure/machine.h"
#include "tests/support/error_of.h"
#include "tools/bench/loss_bench.h"
#include <tessera/objectives/objective.h>

namespace tessera::bench {
namespace {

constexpr std::int64_t kPatches = 9, kTokens = 5, kWidth = 16;

LossBenchSettings small(const std::vector<std::string>& objectives, std::vector<std::int64_t> batch_sizes) {
  LossBenchSettings settings;
  for (const std::string& text : objectives) settings.objectives.push_back(parse_objective(text));
  settings.batch_sizes = std::move(batch_sizes);
  settings.patches = kPatches;
  settings.tokens = kTokens;
  settings.width = kWidth;
  settings.repeats = 1;
  return settings;
}

ModelSettings tiny_model(const std::string& encoder_settings = "pre_norm: false") {
  return config::read<ModelSettings>(config::parse_yaml(R"(
preprocessing: {image_size: 16}
image:
  encoder: {name: vit, patch_size: 8, width: 24, layers: 1, heads: 2, class_token: false, )" + encoder_settings + R"(}
  readout: {name: gap}
  projection: {name: adaptor, embed_dim: 8}
text:
  encoder: {name: text_transformer, width: 24, layers: 1, heads: 2, context_length: 7, vocab_size: 50, attention: bidirectional}
  readout: {name: gap}
  projection: {name: adaptor, embed_dim: 8}
)",
                                                        "model.yaml"));
}

TEST(LossBench, ClipCostsThreeProductsOfGlobalEmbeddings) {
  const LossBench bench = measure_losses(small({"clip"}, {4, 8}));
  // A step has three products: one computes the B x B cosines, and two compute the gradients of the image and text embeddings.
  for (const std::int64_t batch : {4, 8})
    EXPECT_EQ(bench.find("clip", batch)->flops, 3.0 * 2 * batch * batch * kWidth) << batch;
}

TEST(LossBench, SparcAddsOnlyProductsWithinPairs) {
  const LossBench bench = measure_losses(small({"clip", "sparc"}, {4, 8}));
  const auto extra = [&](std::int64_t batch) {
    return bench.find("sparc", batch)->flops - bench.find("clip", batch)->flops;
  };
  EXPECT_GT(extra(4), 0);
  EXPECT_EQ(extra(8), 2 * extra(4)) << "linear in the batch, where CLIP's part is quadratic";
}

TEST(LossBench, FilipComparesEveryPatchWithEveryTokenOfTheBatch) {
  const LossBench bench = measure_losses(small({"{name: filip, token_drop_rate: 0}"}, {2, 4}));
  const double forward_of_4 = 2.0 * 4 * 4 * kPatches * kTokens * kWidth;
  EXPECT_GE(bench.costs.at(1).flops, forward_of_4);
}

TEST(LossBench, MemoryIncludesTheGradientsAndGrowsWithTheBatch) {
  const LossBench bench = measure_losses(small({"clip", "sparc", "gloria"}, {4, 8}));
  for (const char* objective : {"clip", "sparc", "gloria"}) {
    EXPECT_GE(bench.find(objective, 4)->memory, 2 * 4 * kWidth * 4) << objective;
    EXPECT_GT(bench.find(objective, 8)->memory, bench.find(objective, 4)->memory) << objective;
    EXPECT_GT(bench.find(objective, 4)->seconds, 0) << objective;
  }
  EXPECT_GT(bench.find("gloria", 8)->memory, 8 * 8 * kTokens * kPatches * 4) << "[B, B, L, P] is held without a chunk";
}

TEST(LossBench, BatchesAboveTheMemoryLimitDoNotFit) {
  LossBenchSettings settings = small({"clip", "gloria"}, {4, 16, 32});
  settings.memory_limit = 400'000;
  const LossBench bench = measure_losses(settings);
  EXPECT_EQ(bench.find("clip", 32)->outcome, Outcome::measured);
  EXPECT_EQ(bench.find("gloria", 4)->outcome, Outcome::measured);
  EXPECT_EQ(bench.find("gloria", 16)->outcome, Outcome::does_not_fit);
  EXPECT_EQ(bench.find("gloria", 32)->outcome, Outcome::does_not_fit);
}

TEST(LossBench, BatchesThatWouldTakeTooLongAreLeftOut) {
  LossBenchSettings settings = small({"sparc"}, {4, 4096});
  settings.time_limit = 1e-6;
  const LossBench bench = measure_losses(settings);
  EXPECT_EQ(bench.find("sparc", 4)->outcome, Outcome::measured);
  EXPECT_EQ(bench.find("sparc", 4096)->outcome, Outcome::takes_too_long);
}

TEST(LossBench, EveryObjectiveRunsInBfloat16) {
  LossBenchSettings settings = small({"clip", "sparc", "filip", "pacl", "gloria", "mgca", "clip_filip"}, {2});
  settings.dtype = at::kBFloat16;
  for (const LossCost& cost : measure_losses(settings).costs) {
    EXPECT_EQ(cost.outcome, Outcome::measured) << cost.objective;
    EXPECT_GT(cost.flops, 0) << cost.objective;
  }
}

TEST(LossBench, WithAModelTheUpdateStepIncludesTheTowers) {
  LossBenchSettings settings = small({"clip", "sparc"}, {3});
  settings.model = tiny_model();
  const LossBench bench = measure_losses(settings);
  EXPECT_EQ(bench.settings.patches, 4);
  EXPECT_EQ(bench.settings.tokens, 7);
  EXPECT_EQ(bench.settings.width, 8);
  const ModelCost &clip = *bench.find_model("clip"), &sparc = *bench.find_model("sparc");
  EXPECT_EQ(clip.state, 16 * clip.parameters) << "weight, gradient and two moments, four bytes each";
  EXPECT_EQ(clip.parameters, sparc.parameters);
  const auto activations = [](const ModelCost& cost) { return cost.towers.forward.trace(3).held(); };
  EXPECT_GT(sparc.towers.flops(3), clip.towers.flops(3)) << "the adaptors of patches and tokens";
  EXPECT_GT(activations(sparc), activations(clip));
  // This lower bound counts only the encoders' matrix products: 12 w^2 multiply-adds per layer and token of width w in the forward pass,
  // and twice as many in the backward pass.
  EXPECT_GT(clip.towers.flops(3), 3 * 3.0 * 2 * 12 * 24 * 24 * (4 + 7));
  const LossCost& loss = *bench.find("sparc", 3);
  EXPECT_EQ(step_flops(sparc, loss), sparc.towers.flops(3) + loss.flops);
  EXPECT_EQ(step_memory(sparc, loss), static_cast<double>(sparc.state + loss.memory) + activations(sparc));
}

// An objective that needs regions, several texts, token ids and a teacher. No registered objective needs all of them.
class ManyViews : public Objective {
 public:
  Losses forward(const Features& features, const StepContext& context) override {
    TORCH_CHECK(context.teacher != nullptr);
    const at::Tensor words = features.text().input.mask.sum(1, true);
    const at::Tensor image = features.image().global + features.image("roi").global + words,
                     text = features.text().global + features.text("summary").global;
    return {(image - text).square().mean() + features.teacher_image().global.sum(), {}};
  }
  Needs needs() const override {
    return {.images = {{"image", {.tokens = true, .teacher = true}}, {"roi", {.regions = true}}},
            .texts = {{"caption", {.input_ids = true}}, {"summary", {.optional = true}}}};
  }
};

TEST(LossBench, MeasuresEveryKindOfViewWithAndWithoutAModel) {
  if (!objectives().contains("test_many_views"))
    objectives().add<config::NoSettings>("test_many_views", "", [](const config::NoSettings&, const ObjectiveContext&) {
      return std::make_shared<ManyViews>();
    });
  LossBenchSettings settings = small({"test_many_views"}, {4});
  EXPECT_EQ(measure_losses(settings).costs.at(0).outcome, Outcome::measured);
  settings.model = tiny_model("regions: {width: 12, first_block: 0}");
  const LossBench bench = measure_losses(settings);
  EXPECT_EQ(bench.costs.at(0).outcome, Outcome::measured);
  EXPECT_GT(bench.models.at(0).towers.flops(1), 0);
}

TEST(LossBench, ObjectivesAreNamesOrSettings) {
  EXPECT_EQ(parse_objective("clip").choice.name, "clip");
  EXPECT_EQ(parse_objective("clip_filip").choice.name, "weighted_sum");
  EXPECT_EQ(parse_objective("{name: gloria, chunk: 4}").choice.settings.find("chunk")->text(), "4");
  EXPECT_EQ(error_of([] { parse_objective("clipp"); }),
            "--objectives:1: objective: unknown objective clipp: did you mean clip?");
  EXPECT_EQ(error_of([] { parse_objective("{name: gloria, chunks: 4}"); }),
            "--objectives:1: objective.chunks: unknown key: did you mean chunk?");
}

TEST(Machine, ReportsAvailableMemoryAndThreads) {
  EXPECT_GT(available_memory(at::kCPU), 1 << 20);
  EXPECT_NE(machine_name(at::kCPU).find("thread"), std::string::npos);
}

}  // namespace
}  // namespace tessera::bench
