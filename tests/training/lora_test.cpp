// Tests runs that train LoRA adapters in their towers.
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/models/transformer.h"
#include "src/training/memory/dry_run.h"
#include "src/training/run/run_loss.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include "tests/training/whole_or_cached.h"
#include <tessera/evaluation/inference.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kBoth = {
    "adapt.image={lora: {rank: 4, dropout: 0.2, layers: [query, key, value, out, mlp_in, mlp_out]}}",
    "adapt.text={lora: {rank: 2, alpha: 4, dropout: 0.3}}"};
const std::string kEnd = "/checkpoints/step_0000006";

class LoraRun : public RunTest {
 protected:
  std::string mistake(const std::vector<std::string>& overrides) {
    return error_of([&] { build_training_run(tiny_config(folder_ / "mistake", overrides)); });
  }
};

TEST_F(LoraRun, StartsWithTheWeightsOfARunWithoutLora) {
  const Weights plain = fresh("plain", {});
  Weights adapted = fresh("adapted", kBoth);
  EXPECT_GT(std::erase_if(adapted, [](const auto& item) { return is_adapter(item.first); }), 0U);
  expect_equal(adapted, plain);
}

TEST_F(LoraRun, TrainsOnlyAdaptersAndWhatIsOutsideTheEncoder) {
  const std::vector<std::string> overrides = with(
      kBoth, {"adapt.text.lora.trained=[transformer.resblocks.0.ln_1.*]", "parameters.frozen=[text_projection]"});
  const Weights before = fresh("before", overrides);
  const Checkpoint end = checkpoint_of(train("run", overrides));
  std::int64_t trained = 0;
  for (const auto& [name, tensor] : end.model.weights) {
    const bool moves = is_adapter(name) || name == "visual.proj" || name == "logit_scale" ||
                       name.starts_with("transformer.resblocks.0.ln_1.");
    EXPECT_EQ(at::equal(tensor, before.at(name)), !moves) << name;
    EXPECT_EQ(end.optimizer.contains("exp_avg." + name), moves) << name << ": only trained parameters have moments";
    if (moves) trained += tensor.numel();
  }
  std::int64_t moments = 0;
  for (const auto& [name, tensor] : end.optimizer) moments += name.starts_with("exp_avg.") ? tensor.numel() : 0;
  EXPECT_EQ(moments, trained);
}

TEST_F(LoraRun, ResumesBitForBitWithAveragesAndDropout) {
  const std::vector<std::string> overrides = with(kBoth, {"training.ema={decay: 0.5, warmup: false}"});
  const std::string whole = train("whole", overrides);
  const std::string broken = train("broken", overrides, whole + "/checkpoints/step_0000003");
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(broken);
  expect_equal(a.model.weights, b.model.weights);
  expect_equal(a.ema, b.ema);
  expect_equal(a.optimizer, b.optimizer);
  EXPECT_TRUE(a.ema.contains("visual.transformer.resblocks.0.attn.lora_query_b"));
  // A checkpoint can be written again after it was read.
  const std::string moved = CheckpointFolder(folder_ / "moved", 1).save(a);
  for (const char* file : {"/model.safetensors", "/ema.safetensors", "/adapters.safetensors"})
    EXPECT_EQ(io::read_file(moved + file), io::read_file(whole + kEnd + file)) << file;
}

TEST_F(LoraRun, GradientCheckpointingAndMicroBatchesMayChangeOnResume) {
  const std::string whole = train("whole", kBoth);
  const std::string again = train("again", with(kBoth, {"model.image.encoder.grad_checkpointing=true",
                                                        "model.text.encoder.grad_checkpointing=true"}),
                                  whole + "/checkpoints/step_0000003");
  const auto expected = rows(whole), got = rows(again);
  ASSERT_EQ(got.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(got[i]["loss"].get<double>(), expected[i + 3]["loss"].get<double>(), 1e-5);
}

TEST_F(LoraRun, CheckpointHoldsTheMergedModelAndEvaluatesLikeTheRun) {
  const std::vector<std::string> overrides = with(
      kBoth, {"training.ema={decay: 0.5, warmup: false}", "evaluation.tasks=[{name: validation_loss}, {name: retrieval}]"});
  for (const std::string weights : {"model", "ema"}) {
    const std::string run = train(weights, with(overrides, {"evaluation.weights=" + weights}));
    const std::string file = run + kEnd + "/" + weights + ".safetensors";
    for (const auto& [name, tensor] : load_model_file(file).weights) EXPECT_FALSE(is_adapter(name)) << name;
    EXPECT_TRUE(fs::exists(run + kEnd + "/adapters.safetensors"));
    const InferenceModel loaded = load_for_inference(file, "cpu");
    const TrainingRun parts = build_training_run(tiny_config(run, overrides));
    const TaskResult again = checkpoint_loss(loaded)->measure({.source = parts.validation});
    const auto results = nlohmann::json::parse(io::read_file(run + "/evaluation/step_0000006.json"))["tasks"];
    EXPECT_EQ(results[0]["metrics"]["loss"].get<double>(), again.metrics[0].second) << "to the last bit";
  }
}

TEST_F(LoraRun, EvaluationDoesNotChangeTraining) {
  const std::string with_tasks =
      train("with", with(kBoth, {"evaluation={every_steps: 2, tasks: [{name: validation_loss}]}"}));
  expect_equal(checkpoint_of(with_tasks).model.weights, checkpoint_of(train("without", kBoth)).model.weights);
}

TEST_F(LoraRun, AnotherRunStartsFromTheMergedModel) {
  const std::string first = train("first", kBoth);
  const Weights merged = load_model_file(first + kEnd + "/model.safetensors").weights;
  Weights begun = fresh("second", with(kBoth, {"start.weights=" + first}));
  std::erase_if(begun, [](const auto& item) { return is_adapter(item.first); });
  expect_equal(begun, merged);
  Weights image = fresh("third", with(kBoth, {"start={weights: " + first + ", parts: [image]}"}));
  EXPECT_TRUE(at::equal(image.at("visual.transformer.resblocks.0.attn.in_proj_weight"),
                        merged.at("visual.transformer.resblocks.0.attn.in_proj_weight")));
}

TEST_F(LoraRun, TeacherHasItsOwnAdapters) {
  const std::vector<std::string> overrides = with(kBoth, {"optimizer.eps=0.1"});
  const std::string whole = train("whole", overrides, "none", "test_teacher");
  const std::string broken = train("broken", overrides, whole + "/checkpoints/step_0000003", "test_teacher");
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(broken);
  expect_equal(a.teacher, b.teacher);
  EXPECT_TRUE(a.teacher.contains("transformer.resblocks.0.attn.lora_value_b"));
  for (const auto& [name, tensor] : load_model_file(whole + kEnd + "/teacher.safetensors").weights)
    EXPECT_FALSE(is_adapter(name)) << name;
}

/// Covers dropout, packed texts and gradient checkpointing as well.
TEST_F(LoraRun, MicroBatchesMatchTheWholeBatch) {
  const auto step = [&](std::int64_t chunk, const std::vector<std::string>& more, std::int64_t stride = 2) {
    const Config config = tiny_config(folder_ / "run", with(kBoth, more));
    TrainingRun run = build_training_run(config);
    const at::NoGradGuard no_grad;
    at::manual_seed(1);
    for (const NamedParameter& each : run.optimizer->parameters())
      if (is_adapter(each.name)) each.tensor.normal_(0, 0.2);
    const at::AutoGradMode grad(true);
    return whole_or_cached(run, run.loader->next(), chunk, row_keys(3, 16, stride, 8));
  };
  const StepOutcome whole = step(0, {});
  EXPECT_EQ(whole.gradients.size(), 2U * (6 + 2) + 2 + 1) << "adapters, projections and the logit scale";
  EXPECT_NE(step(0, {}, 1).loss, whole.loss) << "other rows draw other random numbers";
  const std::vector<std::string> again{"model.image.encoder.grad_checkpointing=true",
                                       "model.text.encoder.grad_checkpointing=true", "model.text.encoder.skip_padding=false"};
  for (const auto& [chunk, more] : std::vector<std::pair<std::int64_t, std::vector<std::string>>>{{1, {}}, {3, {}}, {0, again}, {3, again}})
    expect_same_step(step(chunk, more), whole, concat("parts of ", chunk));
}

TEST_F(LoraRun, LayerDecayFollowsTheBlocks) {
  const TrainingRun run = build_training_run(
      tiny_config(folder_ / "run", {"adapt.image={lora: {rank: 2}}", "model.image.encoder.layers=3", "parameters.layer_decay.image=0.5"}));
  for (const NamedParameter& each : run.optimizer->parameters()) {
    if (!is_adapter(each.name)) continue;
    const std::int64_t block = *Transformer::block_of(each.name.substr(std::string_view("visual.").size()));
    EXPECT_DOUBLE_EQ(each.lr_scale, std::pow(0.5, 3 - block)) << each.name;
  }
}

TEST_F(LoraRun, DryRunCountsItsParameters) {
  const DryRunReport report = dry_run(tiny_config(folder_ / "run", {"adapt.image={lora: {rank: 4}}", "parameters.frozen=[text]"}));
  EXPECT_EQ(report.parameters.adapters, 2 * 2 * 4 * 16);
  EXPECT_EQ(*report.parameters.trained, 2 * 2 * 4 * 16 + 16 * 8 + 1);
  EXPECT_TRUE(contains(describe(report.parameters), "; 256 in adapters; 385 are trained"));
}

TEST_F(LoraRun, ReportsContradictorySettings) {
  EXPECT_EQ(mistake({"adapt.image={lora: {}}", "parameters.frozen=[image]"}),
            "parameters.frozen: image freezes visual.transformer.resblocks.0.attn.lora_query_a, which adapt.image.lora trains: the "
            "encoder's own weights are frozen in any case; leave the pattern out, or remove the adapters with "
            "adapt.image.lora.blocks or adapt.image.lora.layers");
  EXPECT_EQ(mistake({"adapt.image={lora: {trained: [visual.ln_pots.*]}}"}),
            "adapt.image.lora.trained: visual.ln_pots.* matches no parameter of the encoder: did you mean visual.ln_post.bias?");
  EXPECT_TRUE(contains(mistake({"adapt.image={lora: {trained: [visual.proj]}}"}),
                       "parameters after the encoder are trained unless"));
  EXPECT_EQ(mistake({"adapt.image={lora: {}}", "parameters.frozen=[visual.conv1.*]"}), "no error")
      << "LoRA freezes it in any case";
  EXPECT_TRUE(contains(mistake({"adapt.image={lora: {}}", "data.features={folder: " + (folder_ / "features") + "}"}),
                       "data.features: the image encoder is trained"));
  train("run", {"adapt.image={lora: {rank: 4}}"});
  EXPECT_TRUE(
      contains(error_of([&] { Trainer(tiny_config(folder_ / "run", {"adapt.image={lora: {rank: 2}}"}), "auto"); }),
               "adapt.image.lora.rank: 4 there, 2 here"));
}

TEST_F(LoraRun, NamesAMissingAdapterFile) {
  const std::string run = train("run", kBoth);
  fs::remove(run + kEnd + "/adapters.safetensors");
  EXPECT_EQ(error_of([&] { checkpoint_of(run); }), run + kEnd + "/adapters.safetensors: missing");
}

}  // namespace
}  // namespace tessera
