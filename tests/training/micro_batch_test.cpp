#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/measure/step_meter.h"
#include "src/training/config/resume_rules.h"
#include "src/training/memory/memory_plan.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::string setting_of(const std::string& file) {
  const std::string text = io::read_file(file), key = "micro_batch: ";
  const std::size_t at = text.find(key) + key.size();
  return text.substr(at, text.find('\n', at) - at);
}

Weights trained(const std::string& folder, const std::string& micro_batch,
                const std::string& resume = "none") {
  Trainer trainer(tiny_config(folder, {"training.micro_batch=" + micro_batch}), resume);
  EXPECT_EQ(trainer.run(), Outcome::finished);
  return end_of(trainer);
}

TEST(MicroBatch, AcceptsANumberAutoOrNull) {
  const auto error = [](const std::string& value) {
    return error_of([&] { tiny_config("runs/x", {"training.micro_batch=" + value}); });
  };
  EXPECT_EQ(error("many"), "--set: training.micro_batch: expected a number of samples, auto or null, got \"many\"");
  EXPECT_EQ(error("2.5"), "--set: training.micro_batch: expected a number of samples, auto or null, got \"2.5\"");
  EXPECT_EQ(error("0"), "--set: training.micro_batch: expected at least 1, got 0");
  for (const char* value : {"auto", "7", "null"}) {
    const Config config = tiny_config("runs/x", {std::string("training.micro_batch=") + value});
    EXPECT_EQ(to_yaml(config), to_yaml(resolve_config(config::parse_yaml(to_yaml(config), "x"), "x"))) << value;
  }
}

TEST(MicroBatch, AutoMayResumeAnyNumberAndNumbersMayChange) {
  const auto with = [](const std::string& value) { return tiny_config("runs/x", {"training.micro_batch=" + value}); };
  EXPECT_TRUE(resume_changes(to_yaml(with("4")), with("auto"), {}).free.empty());
  EXPECT_TRUE(resume_changes(to_yaml(with("null")), with("auto"), {}).free.empty());
  EXPECT_EQ(resume_changes(to_yaml(with("4")), with("2"), {}).free.at(0).text(), "training.micro_batch: 4 there, 2 here");
}

TEST(MicroBatch, AsLargeAsTheBatchEqualsNoMicroBatch) {
  const TemporaryFolder folder;
  expect_equal(trained(folder / "a", "8"), trained(folder / "b", "null"));
}

TEST(MicroBatch, AutoPicksTheLargestThatFits) {
  const auto planned = [](const std::string& micro_batch, std::optional<std::int64_t> available) {
    const Config config = tiny_config(
        "runs/none", {"data.loader.batch_size=24", "data.train.size=80", "training.micro_batch=" + micro_batch});
    TrainingRun run = build_training_run(config);
    PlanSettings settings;
    settings.available = available;
    return plan_memory(run, config, settings);
  };
  for (const std::int64_t samples : {24, 8, 1}) {
    const auto needed = static_cast<double>(planned(std::to_string(samples), {}).total());
    const auto room = static_cast<std::int64_t>(needed / kUsableMemory) + 1;
    const MemoryPlan chosen = planned("auto", room), less = planned("auto", room - 16);
    EXPECT_TRUE(chosen.fits());
    EXPECT_EQ(chosen.micro_batch, samples);
    EXPECT_TRUE(less.micro_batch < samples || !less.fits()) << samples;
  }
  EXPECT_EQ(planned("auto", 1000).micro_batch, 1);
  EXPECT_FALSE(planned("auto", 1000).fits());
}

TEST(MicroBatch, AutoIsResolvedAtTheStartAndRecorded) {
  const TemporaryFolder folder;
  expect_equal(trained(folder / "run", "auto"), trained(folder / "whole", "null"));
  EXPECT_EQ(setting_of(folder / "run/config.yaml"), "8");
  EXPECT_TRUE(contains(io::read_file(folder / "run/log.txt"),
                       "training.micro_batch auto: 8 of 8 samples at a time; planned memory "));
}

TEST(MicroBatch, AutoResumesWithTheNumberOfTheCheckpoint) {
  const TemporaryFolder folder;
  const auto unbroken = trained(folder / "whole", "3");
  expect_equal(trained(folder / "again", "auto", folder / "whole/checkpoints/step_0000003"), unbroken);
  EXPECT_EQ(setting_of(folder / "again/config.yaml"), "3");
}

TEST(Chunk, AutoChoosesTilesIfSimilaritiesTakeMoreThanATenthOfTheMemory) {
  const auto chosen = [](const std::string& objective, int ranks, double bytes_of_the_tenth, const std::string& key) {
    Config config = tiny_config("runs/x", {"objective=" + objective});
    const std::string line = settle_chunks(config, ranks, std::llround(10 * bytes_of_the_tenth));
    const auto all = chunk_settings(config);
    const auto found = std::ranges::find(all, key, &ChunkSetting::path);
    EXPECT_NE(found, all.end()) << key;
    EXPECT_FALSE(found->chunk.automatic);
    const std::string number = found->chunk.samples ? std::to_string(*found->chunk.samples) : "null";
    EXPECT_TRUE(line.starts_with(key + " auto: " + number + ", because the similarities of 8 x ")) << line;
    return number;
  };
  const double clip = 8 * 4 * 8 * 8;
  EXPECT_EQ(chosen("{name: clip, chunk: auto}", 1, clip, "objective.chunk"), "null");
  EXPECT_EQ(chosen("{name: clip, chunk: auto}", 1, clip - 1, "objective.chunk"), "256");
  EXPECT_EQ(chosen("{name: siglip, chunk: auto}", 4, 4 * clip, "objective.chunk"), "null");
  EXPECT_EQ(chosen("{name: siglip, chunk: auto}", 4, 4 * clip - 1, "objective.chunk"), "256");
  const std::string sum = "{name: weighted_sum, objectives: [{name: clip, settings: {chunk: 7}}, {name: siglip, settings: {chunk: auto}}]}";
  EXPECT_EQ(chosen(sum, 1, clip - 1, "objective.objectives.1.chunk"), "256");
  // Images have 4 patches. The texts of all ranks have 24 tokens of width 8, with their gradients.
  const double tokens = 4 * 2 * 24 * 8, numbers_of_filip = 8 + 1.25 * (4 + 24);
  EXPECT_EQ(chosen("{name: filip, chunk: auto}", 1, clip, "objective.chunk"), "null");
  for (const auto& [objective, numbers] : {std::pair("filip", numbers_of_filip), std::pair("pacl", 8. + 16 * 4), std::pair("gloria", 8. + 13 * 4 * 24)}) {
    const std::string setting = concat("{name: ", objective, ", chunk: auto}");
    const double bytes = 4 * numbers * 8 * 16 + 16 * tokens;
    EXPECT_EQ(chosen(setting, 2, bytes, "objective.chunk"), "null");
    EXPECT_EQ(chosen(setting, 2, bytes - 1, "objective.chunk"), "256");
  }
  Config without = tiny_config("runs/x", {"objective={name: clip, chunk: 3}"});
  EXPECT_EQ(settle_chunks(without, 1, 1), "");
  EXPECT_EQ(chunk_settings(without).at(0).chunk.samples, 3);
}

TEST(Chunk, AutoIsResolvedAtTheStartAndMayResumeAnyNumber) {
  const TemporaryFolder folder;
  const auto trained_with = [&](const std::string& name, const std::string& chunk, const std::string& resume) {
    Trainer trainer(tiny_config(folder / name, {"objective={name: clip, chunk: " + chunk + "}"}), resume);
    EXPECT_EQ(trainer.run(), Outcome::finished);
    return end_of(trainer);
  };
  const auto whole = trained_with("run", "auto", "none");
  expect_equal(whole, trained_with("null", "null", "none"));
  EXPECT_TRUE(contains(io::read_file(folder / "run/log.txt"),
                       "objective.chunk auto: null, because the similarities of 8 x 8 pairs would take "));
  EXPECT_FALSE(contains(io::read_file(folder / "run/config.yaml"), "auto: "));
  EXPECT_TRUE(contains(io::read_file(folder / "run/config.yaml"), "chunk: ~"));
  trained_with("tiles", "3", "none");
  trained_with("resumed", "auto", folder / "tiles/checkpoints/step_0000003");
  const auto expected = rows(folder / "run"), got = rows(folder / "resumed");
  ASSERT_EQ(got.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i]["loss"].get<double>(), expected[i + 3]["loss"].get<double>(), 1e-4);
}

TEST(OutOfMemory, ReportsThePlanAndTheWaysOutInOneLine) {
  const TemporaryFolder folder;
  Trainer trainer(tiny_config(folder / "run", {"data.loader.batch_size=40"}), "none");
  const std::string error = error_of([&] {
    const MemoryMeter limit(500000);  // bytes, enough for a few samples
    trainer.run();
  });
  EXPECT_TRUE(error.starts_with("out of memory in step 1 with a batch of 40: it takes about ")) << error;
  EXPECT_TRUE(contains(error, "highest in the "));
  EXPECT_TRUE(contains(error, "set training.micro_batch: auto, or model.image.encoder.grad_checkpointing: true"));
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera
