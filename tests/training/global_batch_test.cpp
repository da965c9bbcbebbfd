// Tests training.global_batch: the batch of each rank follows from it, so that the number of ranks changes nothing.
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "src/training/config/resume_rules.h"
#include "src/training/memory/dry_run.h"
#include "src/training/run/epochs.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

class GlobalBatch : public ::testing::Test {
 protected:
  GlobalBatch() { register_test_modules(); }

  static Config on_ranks(const std::vector<std::string>& overrides, int ranks) {
    return with_rank_batch(tiny_config("runs/x", overrides), ranks);
  }
};

TEST_F(GlobalBatch, IsDividedAmongRanksAndAccumulatedBatches) {
  const std::vector<std::string> whole{"training.global_batch=48"}, halves = with(whole, {"training.accumulation=2"});
  EXPECT_EQ(on_ranks(whole, 1).data.loader.batch_size, 48);
  EXPECT_EQ(on_ranks(whole, 6).data.loader.batch_size, 8);
  EXPECT_EQ(on_ranks(halves, 6).data.loader.batch_size, 4);
  EXPECT_EQ(on_ranks({}, 6).data.loader.batch_size, 8) << "the batch of each rank stays as it is";
  EXPECT_EQ(update_samples(on_ranks(halves, 6), 6), 48);
  EXPECT_EQ(update_samples(on_ranks({"training.accumulation=2"}, 6), 6), 96);
}

TEST_F(GlobalBatch, ThatDoesNotFitIsAnErrorThatNamesNumbersThatDo) {
  const auto error = [](const std::string& global, const std::string& accumulation, int ranks) {
    return error_of([&] { on_ranks({"training.global_batch=" + global, "training.accumulation=" + accumulation}, ranks); });
  };
  EXPECT_EQ(error("1000", "2", 3), "training.global_batch is 1000, which cannot be divided evenly among 3 processes x "
                                   "training.accumulation 2: set it to 996 or 1002, or start 2 or 4 processes");
  EXPECT_EQ(error("1000", "3", 1), "training.global_batch is 1000, which cannot be divided evenly among 1 process x "
                                   "training.accumulation 3: set it to 999 or 1002");
  EXPECT_EQ(error("3", "1", 4), "training.global_batch is 3, which cannot be divided evenly among 4 processes: set it to 4, or start 3 processes");
  EXPECT_EQ(error("7", "1", 5), "training.global_batch is 7, which cannot be divided evenly among 5 processes: set it to 5 or 10, or start 1 or 7 processes");
}

TEST_F(GlobalBatch, MakesABatchOfTheCommandLineAnError) {
  EXPECT_EQ(error_of([] { tiny_config("runs/x", {"training.global_batch=16", "data.loader.batch_size=4"}); }),
            "--set: data.loader.batch_size: has no effect, because training.global_batch determines it: change training.global_batch, or set "
            "it to null");
}

TEST_F(GlobalBatch, IsKnownToEpochsAndDryRun) {
  for (const int ranks : {1, 2, 4})
    EXPECT_EQ(with_steps(tiny_config("runs/x", {"training.steps=null", "training.epochs=2", "training.global_batch=8"}), ranks).training.steps,
              10)
        << ranks;
  const Config config = on_ranks({"training.global_batch=16", "training.accumulation=2"}, 4);
  PlanSettings settings;
  settings.ranks = 4;
  EXPECT_TRUE(contains(to_text(dry_run(config, settings), config), "samples per step  16: batch 2 x accumulation 2 x ranks 4"));
}

TEST_F(GlobalBatch, LetsTheBatchOfARankChangeOnResume) {
  const auto refused = [](const std::vector<std::string>& before, int ranks_before, const std::vector<std::string>& now, int ranks_now) {
    std::string out;
    for (const Change& change :
         resume_changes(to_yaml(on_ranks(before, ranks_before)), on_ranks(now, ranks_now), {}, {ranks_before, ranks_now}).refused)
      out += change.key + " ";
    return out;
  };
  const std::vector<std::string> eight{"training.global_batch=8"}, two{"data.loader.batch_size=2"}, four{"data.loader.batch_size=4"};
  EXPECT_EQ(refused(eight, 4, eight, 2), "");
  EXPECT_EQ(refused(two, 4, eight, 8), "") << "a run may start to name its global batch";
  EXPECT_EQ(refused(two, 4, four, 2), "");
  EXPECT_EQ(refused(two, 4, four, 4), "data.loader.batch_size ");
  EXPECT_EQ(refused(eight, 4, {"training.global_batch=16"}, 4), "data.loader.batch_size training.global_batch ");
  EXPECT_EQ(refused({"training.global_batch=8", "training.accumulation=2"}, 2, eight, 4), "training.accumulation ")
      << "the batches whose samples are contrasted would have another size";
}

// Reads two epochs on numbers of ranks that change at the places of a list of {batches, ranks}.
TEST_F(GlobalBatch, EachSampleIsSeenOncePerEpochWhenTheNumberOfRanksChanges) {
  for (const std::string data : {"data.train={name: shapes, size: 40, image_size: 16}",
                                 "data.train={name: mixture, mode: sequential, sources: [{label: many, source: {name: shapes, size: 24, "
                                 "image_size: 16}}, {label: few, source: {name: shapes, size: 16, image_size: 16, seed: 5}}]}"}) {
    std::map<std::string, int> seen;
    std::vector<std::map<std::string, int>> batches, alone;
    DataPosition position;
    const auto read = [&](int ranks, int count, auto& out) {
      const Config config = on_ranks({data, "training.global_batch=8"}, ranks);
      const TrainingRun run = build_training_run(config);
      std::vector<std::unique_ptr<Loader>> loaders;
      for (int rank = 0; rank < ranks; ++rank) {
        loaders.push_back(make_loader(run, config, {rank, ranks}));
        loaders.back()->seek(position);
      }
      for (int i = 0; i < count; ++i) {
        auto& batch = out.emplace_back();
        for (const auto& loader : loaders)
          for (const std::string& key : loader->next().keys) ++batch[key];
      }
      for (const auto& loader : loaders) EXPECT_EQ(loader->position().cursor, loaders[0]->position().cursor);
      position = loaders[0]->position();
    };
    read(1, 10, alone);
    position = {};
    for (const auto& [count, ranks] : {std::pair(2, 4), std::pair(1, 2), std::pair(3, 8), std::pair(4, 1)}) read(ranks, count, batches);
    EXPECT_EQ(batches, alone);
    for (const auto& batch : batches)
      for (const auto& [key, times] : batch) seen[key] += times;
    EXPECT_EQ(seen.size(), 40U);
    for (const auto& [key, times] : seen) EXPECT_EQ(times, 2) << key;
  }
}

}  // namespace
}  // namespace tessera
