// Tests SuperCLIP's counts, which are part of a run's state: every step with an update counts its images once.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/memory/memory_plan.h"
#include "src/training/run/run_loss.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include "tests/training/whole_or_cached.h"
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

constexpr const char* kAlone = "objective={name: superclip}";
constexpr const char* kWithClip = "objective={name: weighted_sum, objectives: [{name: clip}, {name: superclip}]}";
constexpr const char* kDocuments = "objective.document_count";
constexpr const char* kCaptionCount = "objective.caption_count";
constexpr const char* kSummedDocuments = "objective.objectives.superclip.document_count";
constexpr const char* kSummedCaptions = "objective.objectives.superclip.caption_count";

class SuperClipTraining : public RunTest {
 protected:
  Checkpoint train(const std::string& name, std::vector<std::string> overrides, std::int64_t steps = 6,
                   const std::string& resume = "none") {
    overrides.push_back("training.steps=" + std::to_string(steps));
    return checkpoint_of(RunTest::train(name, overrides, resume), steps);
  }
  static std::int64_t captions(const Weights& weights, const char* name = kCaptionCount) {
    return weights.at(name).item<std::int64_t>();
  }
  static std::int64_t letters(const TrainingRun& run) {
    return run.objective->named_buffers()["caption_count"].item<std::int64_t>();
  }
};

TEST_F(SuperClipTraining, CountsEveryImageOnceAndSavesIntegers) {
  for (const char* objective : {kAlone, kWithClip}) {
    const bool alone = objective == std::string(kAlone);
    const std::string name = alone ? "alone" : "sum";
    const Checkpoint end = train(name, {objective, "training.ema={}"});
    const at::Tensor documents = end.model.weights.at(alone ? kDocuments : kSummedDocuments);
    EXPECT_EQ(captions(end.model.weights, alone ? kCaptionCount : kSummedCaptions), 6 * 8);
    EXPECT_EQ(documents.scalar_type(), at::kLong);
    EXPECT_GT(documents.max().item<std::int64_t>(), 24);
    EXPECT_LE(documents.max().item<std::int64_t>(), 48);
    // The averaged weights have a copy of the counts, not an average.
    EXPECT_TRUE(at::equal(end.ema.at(alone ? kDocuments : kSummedDocuments), documents));
    const auto stored = io::load_safetensors(folder_ / (name + "/checkpoints/step_0000006/model.safetensors")).tensors;
    EXPECT_EQ(stored.at(alone ? kDocuments : kSummedDocuments).scalar_type(), at::kLong);
  }
}

TEST_F(SuperClipTraining, GradCacheCountsOnceAndMatchesTheWholeBatch) {
  const auto step = [&](std::int64_t chunk) {
    TrainingRun run = build_training_run(tiny_config(folder_ / "run", {kAlone}));
    const StepOutcome out = whole_or_cached(run, run.loader->next(), chunk);
    EXPECT_EQ(letters(run), 8) << chunk;
    return std::pair{out, run.objective->named_buffers()["document_count"]};
  };
  const auto [whole, documents] = step(0);
  for (const std::int64_t chunk : {1, 3, 8}) {
    const auto [parts, counted] = step(chunk);
    EXPECT_TRUE(at::equal(counted, documents)) << chunk;
    expect_same_step(parts, whole, concat("chunks of ", chunk), 1e-6, 1e-4);
  }
}

TEST_F(SuperClipTraining, DoesNotCountStepsWithoutAnUpdate) {
  const std::string sum = "objective={name: weighted_sum, objectives: [{name: superclip}, {name: test_not_finite, from: 2, until: 4}]}";
  for (const char* precision : {"float32", "fp16"}) {
    std::vector<Weights> ends;
    for (const char* every : {"1", "9"}) {  // with 9, losses are read back late, so the steps after a bad step run again
      const Checkpoint end = train(std::string(precision) + every,
                                   {sum, "training.non_finite=skip", "checkpoint.every_steps=9",
                                    std::string("log.every_steps=") + every,
                                    std::string("training.precision=") + precision},
                                   9);
      EXPECT_EQ(end.state.skipped, 2);
      EXPECT_EQ(captions(end.model.weights, kSummedCaptions), 8 * end.optimizer.at("step").item<std::int64_t>());
      ends.push_back(end.model.weights);
    }
    expect_equal(ends[0], ends[1]);
  }
}

TEST_F(SuperClipTraining, DoesNotCountAStepWithOverflow) {
  const Checkpoint end = train(
      "run", {"objective={name: weighted_sum, objectives: [{name: superclip}, {name: test_teacher, overflow_at: 3}]}",
              "training.precision=fp16"});
  EXPECT_EQ(captions(end.model.weights, kSummedCaptions), 8 * end.optimizer.at("step").item<std::int64_t>());
  EXPECT_LT(end.optimizer.at("step").item<std::int64_t>(), 6);
  EXPECT_EQ(captions(end.teacher, kSummedCaptions), captions(end.model.weights, kSummedCaptions));
}

TEST_F(SuperClipTraining, MeasuringLossAndPlanningMemoryDoNotCount) {
  const Config config = tiny_config(folder_ / "run", {kAlone});
  TrainingRun run = build_training_run(config);
  plan_memory(run, config, {});
  EXPECT_EQ(letters(run), 0);
  forward_loss(run, run.loader->next(), "float32", {});
  LossBatches batches;
  batches.source = run.validation;
  const TaskResult result = run_loss(run, config, 0)->measure(batches);
  EXPECT_EQ(letters(run), 8);
  EXPECT_GT(result.metrics[0].second, 0);
}

TEST_F(SuperClipTraining, FineTuningKeepsTheCounts) {
  train("before", {kWithClip});
  const std::string start = "start.weights=" + (folder_ / "before");
  const Checkpoint after = train("after", {kWithClip, start});
  EXPECT_EQ(captions(after.model.weights, kSummedCaptions), 2 * 48);
  const Checkpoint anew = train("anew", {kWithClip, start, "start.parts=[image, text]"});
  EXPECT_EQ(captions(anew.model.weights, kSummedCaptions), 48);
}

TEST_F(SuperClipTraining, RejectsCountsOfAnotherVocabulary) {
  train("before", {kWithClip});
  const std::string start = "start.weights=" + (folder_ / "before"),
                    file = folder_ / "before/checkpoints/step_0000006/model.safetensors";
  const std::string larger = "objective={name: weighted_sum, objectives: [{name: clip}, {name: superclip, vocab_size: 70}]}";
  EXPECT_EQ(error_of([&] { Trainer(tiny_config(folder_ / "larger", {larger, start}), "none"); }),
            file + ": objective.objectives.superclip.document_count counts 64 words, but this run's vocabulary has 70: start "
                   "from only the towers (start.parts: [image, text])");
  ModelFile other = load_model_file(file);
  other.vocabulary = "other letters";
  save_model_file(folder_ / "other.safetensors", other);
  EXPECT_EQ(error_of([&] {
              Trainer(tiny_config(folder_ / "other", {kWithClip, "start.weights=" + (folder_ / "other.safetensors")}), "none");
            }),
            (folder_ / "other.safetensors") +
                ": objective.objectives.superclip.document_count counts the words of a different vocabulary than the file that "
                "tokenizer names: start from only the towers (start.parts: [image, text])");
}

}  // namespace
}  // namespace tessera
