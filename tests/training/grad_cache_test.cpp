#include <cmath>
#include <ostream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/test_name.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"
#include "tests/training/whole_or_cached.h"

namespace tessera {
namespace {

class GradCacheTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Returns the loss and gradients of the first batch of 8 samples. A `chunk` of 0 means one pass.
  StepOutcome step(std::int64_t chunk, const std::vector<std::string>& overrides = {}, const at::Tensor& nudge = {},
                   const at::Tensor& rows = row_keys(3, 16, 2, 8)) {
    const Config config = tiny_config(folder_ / "run", with(overrides_of(GetParam()), overrides));
    TrainingRun run = build_training_run(config);
    Batch batch = run.loader->next();
    if (batch.duplicates.image_group.defined()) batch.duplicates.image_group.narrow(0, 1, 4).fill_(1);
    if (nudge.defined()) {
      const at::NoGradGuard no_grad;
      run.model->state_dict().at(kNudged).add_(nudge);
    }
    return whole_or_cached(run, batch, chunk, rows);
  }

  static constexpr const char* kNudged = "visual.conv1.weight";
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Objectives, GradCacheTest,
                         ::testing::Values("{name: clip}", "{name: siglip}", "{name: siglip} with own shapes", "{name: sparc}",
                                           "{name: filip, token_drop_rate: 0.2}", "{name: pacl}", "{name: gloria}",
                                           "{name: mgca, num_prototypes: 5}", "{name: test_extras}",
                                           "{name: siglip, init_logit_bias: -2} with siglip",
                                           "{name: clip} with dinov3", "{name: sparc} with eva02",
                                           "{name: multi_positive_clip, denominator: negatives} with captions",
                                           "{name: flair, heads: 2} with captions",
                                           "{name: dreamlip, sparsify: false} with captions",
                                           "{name: cosmos, heads: 2, local_crops: 2} with crops and captions",
                                           "{name: weighted_sum, objectives: [{name: siglip}, {name: captioning, decoder: {context_length: 24, layers: 1, heads: 2}}]}",
                                           "{name: weighted_sum, objectives: [{name: siglip, hard_negatives: all}, {name: region_contrast, hard_weight: 0.5, rank_weight: 0.4, text_weight: 1}]} with boxes"),
                         test_name<const char*>);

TEST_P(GradCacheTest, MatchesOnePass) {
  const StepOutcome whole = step(0);
  for (const std::int64_t chunk : {1, 3, 8, 100}) expect_same_step(step(chunk), whole, concat("chunks of ", chunk));
}

// A batch pads its captions to the length of its longest text. Each chunk removes the padding from its own captions.
TEST_P(GradCacheTest, SkippingPaddingMatchesOnePassWithPadding) {
  for (const std::string attention : {"causal", "bidirectional"}) {
    std::vector<std::string> text{"model.text.encoder.attention=" + attention, "model.text.encoder.skip_padding=true"};
    const StepOutcome packed = step(3, text);
    text.back() = "model.text.encoder.skip_padding=false";
    expect_same_step(packed, step(0, text), attention);
  }
}

TEST_P(GradCacheTest, MatchesOnePassForSlotReadOuts) {
  const std::string sparo = "={name: sparo, slots: 4, slot_width: 4, key_width: 3}";
  const std::vector<std::string> slots{"model.image.readout" + sparo, "model.text.readout" + sparo};
  expect_same_step(step(3, slots), step(0, slots), "chunks of 3");
}

TEST_P(GradCacheTest, GradientCheckpointingKeepsTheGradients) {
  const StepOutcome plain = step(0);
  const std::vector<std::string> again{"model.image.encoder.grad_checkpointing=true",
                                       "model.text.encoder.grad_checkpointing=true"};
  for (const std::int64_t chunk : {0, 3}) expect_same_step(step(chunk, again), plain, concat("chunks of ", chunk));
}

// A row's key determines its random numbers, so chunks draw the same numbers as one pass.
TEST_P(GradCacheTest, MatchesOnePassUnderPatchDropout) {
  if (needs_all_patches(GetParam())) GTEST_SKIP() << "it takes no patch_dropout";
  const std::vector<std::string> noisy{"model.image.encoder.patch_dropout=0.5", "model.image.encoder.patch_size=4"};
  const StepOutcome whole = step(0, noisy);
  EXPECT_NE(step(0, noisy, {}, row_keys(3, 16, 1, 8)).loss, whole.loss);
  for (const std::int64_t chunk : {1, 3}) expect_same_step(step(chunk, noisy), whole, concat("chunks of ", chunk));
}

TEST_P(GradCacheTest, DuplicatesReachTheLoss) {
  const bool several = std::string(GetParam()).ends_with("captions");
  if (std::string(GetParam()).find("weighted_sum") != std::string::npos) GTEST_SKIP() << "its contrastive loss is one of several";
  if (std::string(GetParam()).find("test_extras") != std::string::npos) GTEST_SKIP() << "it has no negatives";
  const std::vector<std::string> masked{several ? "objective.duplicates=masked" : "objective.mask_duplicates=true"};
  const StepOutcome whole = step(0, masked);
  EXPECT_LT(whole.loss, step(0).loss);
  EXPECT_NEAR(step(3, masked).loss, whole.loss, 1e-5 * (1 + whole.loss));
}

// Without row keys, chunks draw different random numbers than one pass would. But both passes over a chunk must draw the same
// numbers, so that the gradient is that of the loss.
TEST_P(GradCacheTest, GradientBelongsToTheLossUnderPatchDropout) {
  if (needs_all_patches(GetParam())) GTEST_SKIP() << "it takes no patch_dropout";
  std::vector<std::string> noisy{"model.image.encoder.patch_dropout=0.5", "model.image.encoder.patch_size=4"};
  if (std::string(GetParam()).find("mgca") != std::string::npos)
    noisy.push_back("objective.prototype_weight=0");  // the prototype loss treats its codes as constants, but finite differences do not
  const at::Tensor no_keys;
  const StepOutcome at = step(3, noisy, {}, no_keys);
  const at::Tensor gradient = at.gradients.at(kNudged);
  const double length = gradient.norm().item<double>();
  const double width = 2e-3;
  const at::Tensor nudge = gradient * (width / length);
  const double slope = (step(3, noisy, nudge, no_keys).loss - step(3, noisy, -nudge, no_keys).loss) / (2 * width);
  EXPECT_NEAR(slope, length, 0.03 * length + 1e-3);
}

struct CachedSystem {
  std::string name;
  std::string kind;  // argument of system_config()
  std::vector<std::string> overrides = {};
  double floor = 1e-7, tolerance = 1e-5;  // arguments of expect_same_step()
};
void PrintTo(const CachedSystem& given, std::ostream* out) {
  *out << given.name;
}

class GradCacheOfSystems : public ::testing::TestWithParam<CachedSystem> {
 protected:
  // Returns the loss, gradients and buffers of step 3 with a teacher that differs from the student. A `chunk` of 0 means one pass.
  StepOutcome step(std::int64_t chunk, std::uint64_t seed = 3) const {
    const bool text_group = GetParam().kind == "text_group";
    const Config config = system_config(GetParam().kind, folder_.path(), "run", GetParam().overrides);
    TrainingRun run = build_training_run(config);
    {
      const at::NoGradGuard no_grad;
      if (run.teacher)
        for (const auto& [name, average] : run.teacher->ema.averages())
          if (average.dim() > 1) at::Tensor(average).mul_(1.25);
      // With tiny inputs, a LayerNorm's gradients would be rounding noise.
      for (const auto& [name, tensor] : run.model->state_dict())
        if (text_group && name.starts_with("visual.") && name.ends_with(".weight") && tensor.dim() == 2) at::Tensor(tensor).mul_(10);
    }
    const Batch batch = run.loader->next();
    StepOutcome out = whole_or_cached(run, batch, chunk, row_keys(seed, 16, 2, batch.size()), step_context(run, config, {}, 3));
    for (const auto& item : run.objective->named_buffers()) out.gradients[item.key()] = item.value();
    if (run.teacher) {
      for (const auto& item : run.teacher->model->named_parameters())
        EXPECT_FALSE(item.value().grad().defined()) << item.key();
    }
    // These biases shift all channels of a group equally. The next LayerNorm removes such shifts, so the gradients are rounding noise.
    std::erase_if(out.gradients, [](const auto& item) {
      return item.first.ends_with("mlp_inter.fc2.bias") || item.first.ends_with("group_projector.1.fc2.bias");
    });
    return out;
  }

  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(
    Systems, GradCacheOfSystems,
    ::testing::Values(CachedSystem{"dino", "dino"}, CachedSystem{"silc", "silc"}, CachedSystem{"siglip2", "siglip2"},
                      CachedSystem{"teacher", "{name: test_teacher}",  // the student drops patches; the teacher never does
                                   {"model.image.encoder.patch_dropout=0.5", "model.image.encoder.patch_size=4"}},
                      CachedSystem{"any_views", "any_views"}, CachedSystem{"stair", "stair", {}, 1e-6, 1e-4},
                      CachedSystem{"stair_masked", "stair", {"objective.text_token_mask=true"}, 1e-6, 1e-4},
                      CachedSystem{"text_group", "text_group", {}, 1e-6},
                      CachedSystem{"text_group_chunk", "text_group", {"objective.chunk=3"}, 1e-6}),
    test_name<CachedSystem>);

TEST_P(GradCacheOfSystems, MatchesOnePass) {
  const StepOutcome whole = step(0);
  for (const std::int64_t chunk : {1, 3, 8})
    expect_same_step(step(chunk), whole, concat("chunks of ", chunk), GetParam().floor, GetParam().tolerance);
  if (GetParam().kind == "text_group") {
    EXPECT_GT(std::abs(step(0, 4).loss - whole.loss), 1e-4) << "there is noise";
  }
}

}  // namespace
}  // namespace tessera
