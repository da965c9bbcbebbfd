// Tests which settings may change on resume, where a run resumes, and that only one trainer works in a folder.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/data_fingerprint.h"
#include "src/data/shapes/shapes.h"
#include "src/io/file_lock.h"
#include "src/training/checkpoint/checkpoint_commands.h"
#include "src/training/config/resume_rules.h"
#include "src/training/interrupt.h"
#include "src/training/restore.h"
#include "src/training/stages.h"
#include "src/training/trainer.h"
#include "tests/support/page_data.h"
#include "tests/support/shards.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> keys_of(const std::vector<Change>& changes) {
  std::vector<std::string> out;
  for (const Change& change : changes) out.push_back(change.key);
  return out;
}

ResumeChanges after(const std::vector<std::string>& overrides, const std::vector<std::string>& allowed = {},
                    const std::vector<std::string>& before = {}) {
  return resume_changes(to_yaml(tiny_config("runs/x", before)), tiny_config("runs/y", overrides), allowed);
}

TEST(ResumeRules, KeysCoverEverythingBelowThem) {
  EXPECT_TRUE(stands_for("optimizer", "optimizer.lr"));
  EXPECT_TRUE(stands_for("optimizer.lr", "optimizer.lr"));
  EXPECT_FALSE(stands_for("optimizer.lr", "optimizer.lr_scale"));
  EXPECT_FALSE(stands_for("optimizer.lr", "optimizer"));
  EXPECT_TRUE(stands_for("model.*.encoder.grad_checkpointing", "model.text.encoder.grad_checkpointing"));
  EXPECT_TRUE(stands_for("data.train.**.path", "data.train.path"));
  EXPECT_TRUE(stands_for("data.train.**.path", "data.train.sources.0.source.path"));
  EXPECT_FALSE(stands_for("data.train.**.path", "data.train.sources.0.weight"));
}

TEST(ResumeRules, LengthThreadsTasksMicroBatchAndLogMayChange) {
  const ResumeChanges changes =
      after({"training.steps=9", "training.micro_batch=4", "training.threads=1", "data.loader.threads=1",
             "evaluation={every_steps: 3, tasks: [{name: retrieval}]}", "checkpoint.keep_last=9",
             "checkpoint.command=true", "log.every_steps=2"});
  EXPECT_TRUE(changes.refused.empty()) << refusal(changes.refused);
  EXPECT_GE(changes.free.size(), 8u);
}

TEST(ResumeRules, MissingSettingsOfAnEarlierVersionHadTheirDefaults) {
  config::Node before = config::parse_yaml(to_yaml(tiny_config("runs/x", {})), "before");
  before.erase("adapt");
  config::Node model = *before.find("model"), image = *model.find("image"), encoder = *image.find("encoder");
  encoder.erase("out_bias");
  image.set("encoder", encoder);
  model.set("image", image);
  before.set("model", model);
  const auto refused = [&](const std::vector<std::string>& overrides) {
    return keys_of(resume_changes(config::to_yaml(before), tiny_config("runs/y", overrides), {}).refused);
  };
  EXPECT_TRUE(refused({}).empty());
  EXPECT_EQ(refused({"model.image.encoder.out_bias=false"}), std::vector<std::string>{"model.image.encoder.out_bias"});
}

TEST(ResumeRules, RejectsOtherChangesAndNamesTheWayOut) {
  const ResumeChanges changes = after({"optimizer.lr=0.5", "seed=4"});
  EXPECT_EQ(refusal(changes.refused),
            "was trained with other settings: seed: 3 there, 4 here; optimizer.lr: 0.01 there, 0.5 here: use the same "
            "settings, allow these changes with --allow-changes seed optimizer.lr, or choose another run.folder");
  const ResumeChanges some = after({"optimizer.lr=0.5", "seed=4"}, {"optimizer"});
  EXPECT_EQ(keys_of(some.allowed), std::vector<std::string>{"optimizer.lr"});
  EXPECT_EQ(keys_of(some.refused), std::vector<std::string>{"seed"});
}

TEST(ResumeRules, RejectsAllowedKeysThatAreNotSettings) {
  EXPECT_EQ(error_of([] { after({"seed=4"}, {"seed", "optimizer.lrr"}); }),
            "--allow-changes optimizer.lrr: there is no such setting: did you mean optimizer.lr?");
  EXPECT_EQ(error_of([] { after({"seed=4"}, {"sed"}); }), "--allow-changes sed: there is no such setting: did you mean seed?");
  EXPECT_EQ(error_of([] { after({"seed=4"}, {"seed", "data.train", "model.*.encoder.width", "data.train.**.size"}); }),
            "no error");
}

TEST(ResumeRules, ReportsAnotherModuleAsOneChange) {
  EXPECT_EQ(keys_of(after({"optimizer.name=lamb"}).refused), std::vector<std::string>{"optimizer.name"});
}

TEST(ResumeRules, ComparesLongListsToTheirEnd) {
  const std::string list = "parameters.frozen=[aaaaaaaaaaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb, ";
  EXPECT_EQ(keys_of(after({list + "c]"}, {}, {list + "d]"}).refused), std::vector<std::string>{"parameters.frozen"});
}

TEST(ResumeRules, PathsOfAMixtureMayChangeButItsWeightsMayNot) {
  const auto mixture = [](const std::string& folder, int weight) {
    return concat("data.train={name: mixture, mode: weighted, sources: [{label: a, weight: ", weight,
                  ", source: {name: webdataset, path: ", folder, "/a.tar}}, {label: b, source: {name: shapes}}]}");
  };
  const ResumeChanges changes = after({mixture("/new", 2)}, {}, {mixture("/old", 1)});
  EXPECT_EQ(keys_of(changes.refused), std::vector<std::string>{"data.train.sources.0.weight"});
  EXPECT_NE(std::ranges::count(keys_of(changes.free), "data.train.sources.0.source.path"), 0);
}

// Compares the rules for changed settings with the keys in the first column of the table in docs/training.md.
TEST(ResumeRules, MatchTheDocs) {
  const std::string page = io::read_file(TESSERA_SOURCE_DIR "/docs/training.md");
  const std::size_t begin = page.find("\n## What may change on resume\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string section = page.substr(begin + 1, page.find("\n## ", begin + 1) - begin - 1);
  std::set<std::string> listed;
  for (const std::string& line : split(section, '\n')) {
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> parts = split(line.substr(0, line.find('|', 1)), '`');
    for (std::size_t i = 1; i < parts.size(); i += 2) listed.insert(parts[i]);
  }
  const auto& free = keys_free_to_change();
  EXPECT_EQ(listed, std::set<std::string>(free.begin(), free.end()));
}

class ResumeTest : public RunTest {
 protected:
  void expect_same_weights(const std::string& a, const std::string& b) {
    expect_equal(checkpoint_of(folder_ / a).model.weights, checkpoint_of(folder_ / b).model.weights);
  }
  std::string log(const std::string& run) { return io::read_file(folder_ / run + "/log.txt"); }
  /// Writes shards with 20 samples of shapes each, `samples` in total. Returns the overrides of a run on these shards.
  std::vector<std::string> write_samples(const std::string& name, std::int64_t samples = 40) {
    ShapesSettings shapes;
    shapes.size = samples;
    shapes.image_size = 16;
    write_shards(ShapesSource(shapes), {.folder = folder_ / name, .samples_per_shard = 20});
    return of_samples(name);
  }
  std::vector<std::string> of_samples(const std::string& name) const {
    return {"data.train={name: webdataset, index_cache: off, path: " + (folder_ / name) + "}"};
  }
};

TEST_F(ResumeTest, AllowedChangeTakesEffectAndIsRecorded) {
  train("run", {"training.steps=3"});
  train("run", {"optimizer.lr=0.05"}, {"auto", {"optimizer.lr"}});
  const std::string run = folder_ / "run";
  EXPECT_TRUE(contains(log("run"), "changed at step 3 by --allow-changes: optimizer.lr: 0.01 there, 0.05 here"));
  const auto noted = json_lines(run + "/changes.jsonl");
  ASSERT_EQ(noted.size(), 2u);
  EXPECT_EQ(noted[0].at("step"), 3);
  EXPECT_EQ(noted[0].at("resumed").get<std::string>().size(), std::string("2026-11-23T12:34:56Z").size());
  EXPECT_EQ(noted[1], (nlohmann::json{{"step", 3}, {"key", "optimizer.lr"}, {"before", "0.01"}, {"now", "0.05"}}));
  EXPECT_TRUE(contains(io::read_file(run + "/run.html"), "optimizer.lr: 0.01 before, 0.05 now"));
  EXPECT_GT(rows(run).back()["lr"].get<double>(), 0.005);
  // The new rate is now part of the run's configuration, so resuming with it needs no --allow-changes.
  train("run", {"optimizer.lr=0.05", "training.steps=7"}, "auto");
  EXPECT_EQ(page_data(io::read_file(run + "/run.html")).at("marks").dump(), R"([[3.0,"changed"],[6.0,"resumed"]])");
}

TEST_F(ResumeTest, SameShardsAtAnotherPathAreTheSameData) {
  const auto first = write_samples("shards");
  train("whole", first);
  fs::create_directories(folder_ / "elsewhere");
  fs::rename(folder_ / "shards", folder_ / "elsewhere/moved");
  const Resume middle(folder_ / "whole/checkpoints/step_0000003");
  train("moved", of_samples("elsewhere/moved"), middle);
  expect_same_weights("whole", "moved");
}

TEST_F(ResumeTest, RejectsOtherDataUnlessAllowed) {
  train("run", write_samples("shards"));
  const std::string newest = folder_ / "run/checkpoints/step_0000006";
  const auto more = write_samples("more", 60);
  EXPECT_EQ(error_of([&] { Trainer(tiny_config(folder_ / "run", more), "auto"); }),
            newest +
                ": was trained on other data than data.train names now: 2 files there, 3 here: use the same data, allow "
                "this change with --allow-changes data.train, or choose another run.folder");
  auto longer = more;
  longer.push_back("training.steps=8");
  train("run", longer, {"auto", {"data.train"}});
  EXPECT_TRUE(contains(log("run"), "changed at step 6 by --allow-changes: data.train: "));
  EXPECT_EQ(checkpoint_of(folder_ / "run", 8).state.data.epoch, 2);
}

TEST_F(ResumeTest, FingerprintCoversNamesSizesAndSampledContent) {
  write_samples("shards");
  const auto print = [&](const std::string& name) {
    const auto config = tiny_config("runs/x", of_samples(name));
    return compute_fingerprints(*sources().make(config.data.train, "data.train"));
  };
  const DataFingerprints before = print("shards");
  EXPECT_EQ(before, fingerprints_from_json(to_json(before)));
  const std::string shard = folder_ / "shards/shard-00001.tar", good = io::read_file(shard);
  std::string other = good;
  other[600] ^= 1;
  io::write_file(shard, other);
  EXPECT_EQ(first_difference(before, print("shards")), "the content of the files differs");
  io::write_file(shard, good + std::string(512, '\0'));
  EXPECT_EQ(first_difference(before, print("shards")), "the sizes of the files differ");
  io::write_file(shard, good);
  EXPECT_EQ(first_difference(before, print("shards")), "");
  fs::rename(shard, folder_ / "shards/shard-00009.tar");
  EXPECT_EQ(first_difference(before, print("shards")), "the names of the files differ");
}

TEST(ResumeRules, AnotherTuningTableIsRefusedIfTheRunIsDeterministic) {
  TrainingRun run;
  Checkpoint checkpoint;
  EXPECT_EQ(check_tuning(run, checkpoint, "there", true), "");
  checkpoint.tuning = "built-in";
  EXPECT_EQ(check_tuning(run, checkpoint, "there", true), "") << "the run has no GPU";
  run.tuning = "0123456789abcdef";
  EXPECT_EQ(check_tuning(run, checkpoint, "there", false),
            "there: was trained with the tuning table built-in, and this run uses 0123456789abcdef: results differ by rounding");
  EXPECT_EQ(error_of([&] { check_tuning(run, checkpoint, "there", true); }),
            "there: was trained with the tuning table built-in, and this run uses 0123456789abcdef: with training.deterministic they must "
            "be the same: name the first table's file in TESSERA_TUNING, or resume with training.deterministic=false and --allow-changes "
            "training.deterministic");
  checkpoint.tuning = run.tuning;
  EXPECT_EQ(check_tuning(run, checkpoint, "there", true), "");
}

TEST_F(ResumeTest, SavesAStateFromElsewhereInItsOwnFolderUnderAnyNameOfTheCheckpoint) {
  const std::string first = train("first"), newest = first + "/checkpoints/step_0000006", kept = first + "/kept";
  fs::copy(newest, kept);
  train("second", {}, newest + "/");
  train("third", {}, kept);
  for (const char* run : {"second", "third"}) expect_same_weights("first", run);
  train("first", {"training.steps=7"}, newest + "/");  // in the folder that holds it
  EXPECT_TRUE(contains(log("first"), "resumed from " + newest + ": step 6"));
}

TEST_F(ResumeTest, WarnsAboutFewerStepsThanAreTrained) {
  train("run");
  train("run", {"training.steps=4"}, "auto");
  EXPECT_TRUE(
      contains(log("run"), "training.steps is 4, but 6 steps are already trained: there is nothing left to train"));
}

TEST_F(ResumeTest, WarnsAboutABatchOfOneAndATooLargeMicroBatch) {
  train("one", {"data.loader.batch_size=1", "training.steps=1", "schedule.warmup_steps=0", "training.micro_batch=4"});
  EXPECT_TRUE(contains(log("one"), "training.micro_batch is 4, more than data.loader.batch_size, 1"));
  EXPECT_TRUE(
      contains(log("one"), "the objective clip compares a pair with the others of its batch, but there are none"));
  train("lone", {"data.loader.batch_size=1", "training.steps=1", "schedule.warmup_steps=0"}, "none", "test_distance");
  EXPECT_FALSE(contains(log("lone"), "but there are none"));
}

TEST_F(ResumeTest, SecondTrainerInTheFolderIsRejected) {
  const Trainer first(tiny_config(folder_ / "run"), "none");
  const std::string error = error_of([&] { Trainer(tiny_config(folder_ / "run"), "auto"); });
  EXPECT_TRUE(error.starts_with((folder_ / "run") + ": another trainer is using this run folder (process "))
      << error;
  EXPECT_TRUE(error.ends_with("): wait until it ends, stop it, or choose another run.folder")) << error;
}

TEST_F(ResumeTest, HandlesSighupLikeSigtermUnlessItWasIgnored) {
  {
    const InterruptGuard guard;
    ::raise(SIGHUP);
    EXPECT_EQ(interrupted(), SIGHUP);
  }
  std::signal(SIGHUP, SIG_IGN);
  {
    const InterruptGuard guard;
    ::raise(SIGHUP);
    EXPECT_EQ(interrupted(), 0);
  }
  std::signal(SIGHUP, SIG_DFL);
}

TEST_F(ResumeTest, FetchesAStoredCheckpointIntoAnEmptyRun) {
  const std::string store = folder_ / "store";
  const std::vector<std::string> stored = {
      "run.name=a", "checkpoint.command='mkdir -p " + store + "/$2 && cp -r \"$1\" " + store + "/$2/'",
      "checkpoint.fetch_command='test ! -d " + store + "/$2 || cp -r " + store + "/$2/. \"$1\"'"};
  train("whole", stored, "auto");  // nothing is stored yet, so the run starts fresh
  EXPECT_TRUE(contains(log("whole"), "checkpoint.fetch_command: nothing is stored yet"));
  EXPECT_TRUE(fs::exists(store + "/a/step_0000006/manifest.json"));
  fs::remove_all(store + "/a/step_0000006");
  train("broken", stored, "auto");
  EXPECT_TRUE(contains(log("broken"), "step_0000003: step 3, "));
  expect_same_weights("whole", "broken");
  EXPECT_FALSE(fs::exists(folder_ / "broken/checkpoints/.writing_fetched"));
}

TEST_F(ResumeTest, FailedFetchIsAnErrorNotAFreshStart) {
  const auto fetch = [&](const std::string& command) {
    const std::string folder = folder_ / "checkpoints";
    return error_of([&] { fetch_checkpoint(command, "a", folder); });
  };
  EXPECT_EQ(
      fetch("exit 4"),
      "checkpoint.fetch_command: exit 4: failed with exit code 4 (if nothing is stored yet, it must exit with 0 and fetch "
      "nothing)");
  EXPECT_EQ(
      fetch("touch \"$1\"/model.safetensors"),
      "checkpoint.fetch_command: fetched model.safetensors, but no checkpoint: expected folders like step_0001000 in "
      "the folder passed as $1");
  EXPECT_TRUE(fetch("mkdir \"$1\"/step_0000003").starts_with("no checkpoint can be read: "));
  EXPECT_FALSE(fetch_checkpoint("true", "a", folder_ / "checkpoints"));
  std::signal(SIGCHLD, SIG_IGN);  // now the kernel does not report exit codes
  EXPECT_TRUE(contains(fetch("exit 7"), "exit 7: cannot wait for its end: No child processes"));
  EXPECT_EQ(run_program("test", [] { return std::signal(SIGCHLD, SIG_DFL) == SIG_DFL ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace tessera
