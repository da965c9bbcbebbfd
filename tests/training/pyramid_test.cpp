#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/trainer.h"
#include "tests/training/pyramid_run.h"
#include "tests/training/tiny_run.h"
#include "tests/training/whole_or_cached.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using PyramidTraining = RunTest;

TEST_F(PyramidTraining, MicroBatchesAndTilesMatchTheWholeBatch) {
  const std::string shards = write_pyramid_shards(folder_ / "shards");
  const auto step = [&](std::int64_t chunk, const std::string& tile) {
    TrainingRun run = build_training_run(pyramid_config(folder_ / "run", shards, {"objective.chunk=" + tile}));
    return whole_or_cached(run, run.loader->next(), chunk);
  };
  const StepOutcome whole = step(0, "null");
  EXPECT_GT(whole.gradients.at("visual.roi_proj.weight").abs().sum().item<double>(), 0);
  EXPECT_GT(whole.gradients.at("visual.transformer.resblocks.0.mlp.dwconv.weight").abs().sum().item<double>(), 0);
  for (const auto& [chunk, tile] :
       std::vector<std::pair<std::int64_t, std::string>>{{0, "3"}, {1, "null"}, {3, "null"}, {3, "2"}, {8, "null"}})
    expect_same_step(step(chunk, tile), whole, concat("parts of ", chunk, ", tiles of ", tile));
}

TEST_F(PyramidTraining, TrainsOnDamagedShardsAndListsSkippedSamples) {
  const std::string shards = write_pyramid_shards_with_damage(folder_ / "shards");
  Trainer(pyramid_config(folder_ / "run", shards, {"data.loader.max_bad_share=0.2", "training.steps=8"}), "none").run();
  const auto log = rows(folder_ / "run");
  ASSERT_EQ(log.size(), 8u);
  for (const char* term : {"loss_gs", "loss_lt", "loss_ga", "loss_rs", "loss_la", "loss_rt"})
    EXPECT_GT(log.back()["terms"][term].get<double>(), 0) << term;

  std::set<std::string> listed;
  for (const auto& line : json_lines(folder_ / "run/skipped.jsonl")) {
    listed.insert(line["key"].get<std::string>() + " " + line["reason"].get<std::string>());
    EXPECT_TRUE(contains(line["text"].get<std::string>(), line["key"].get<std::string>())) << line;
    if (line["reason"] == "region_width") {
      EXPECT_EQ(line["text"], "sample " + line["key"].get<std::string>() +
                                  ": its region features are 100 wide, but the model takes 2052");
    }
  }
  EXPECT_EQ(listed, (std::set<std::string>{"bad_0 bad_regions", "bad_1 region_width", "bad_2 region_width",
                                           "bad_3 no_image", "bad_4 no_caption"}));
  const std::string page = io::read_file(folder_ / "run/run.html");
  for (const char* reason : {"bad_regions", "region_width", "no_image", "no_caption"})
    EXPECT_TRUE(contains(page, reason));
}

}  // namespace
}  // namespace tessera
