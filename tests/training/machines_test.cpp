// Tests runs in a store whose ranks are on several machines without a common disk. Each machine is a pair of namespaces: a name of its own,
// and a folder of its own in place of data.cache.folder.
#include <filesystem>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/stages.h"
#include "src/training/trainer.h"
#include "tests/distributed/ranks.h"
#include "tests/remote/remote_fixture.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using remote::ServerReply;
using remote::ServerRequest;

class Machines : public remote::Remote {
 protected:
  /// A machine, and the folder of its local disk.
  struct Machine {
    std::string name, disk = name;
  };

  Machines() { variables_.set("AWS_NO_SIGN_REQUEST", "true"); }

  void SetUp() override {
    register_test_modules();
    fs::create_directories(path("cache"));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(moved_to({"probe"}) ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) GTEST_SKIP() << "this user may not make namespaces";
  }

  /// Moves this process to a machine. Returns false if that is not allowed.
  bool moved_to(const Machine& machine) const {
    fs::create_directories(path(machine.disk));
    return ::unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0 && ::sethostname(machine.name.data(), machine.name.size()) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount(path(machine.disk).c_str(), path("cache").c_str(), nullptr, MS_BIND, nullptr) == 0;
  }

  /// Runs `body` in four ranks, two on each of the machines.
  std::vector<Tensors> run(const Machine& first, const Machine& second, const std::function<Tensors(const ProcessGroup&)>& body) const {
    return run_ranks(4, [&](const ProcessGroup& group) {
      EXPECT_TRUE(moved_to(group.rank() < 2 ? first : second));
      return body(group);
    });
  }

  Config config(const std::vector<std::string>& more = {}, const std::string& folder = "s3://b/run") const {
    return tiny_config(folder, with({"data.cache.folder=" + path("cache"), "data.cache.retries=0", "data.loader.batch_size=4",
                                     "distributed.shard=optimizer", "training.ema={decay: 0.9}", "checkpoint.every_steps=3"}, more),
                       "test_observed");
  }

  /// Trains until the machines fail in this step.
  Tensors fail_in(int step, const ProcessGroup& group, const Config& config) const {
    Trainer trainer(config, "auto", group);
    step_observer() = [step](const StepContext& context) {
      if (context.step == step - 1) user_error("the machines fail");
    };
    EXPECT_TRUE(contains(error_of([&] { trainer.run(); }), "the machines fail"));
    return {};
  }
  /// Trains on two machines until they fail in step 5, after the checkpoint of step 3.
  void fail_on(const Machine& first, const Machine& second) const {
    run(first, second, [&](const ProcessGroup& group) { return fail_in(5, group, config()); });
  }
  std::vector<Tensors> continue_on(const Machine& first, const Machine& second) const {
    return run(first, second, [&](const ProcessGroup& group) {
      Trainer trainer(config(), "auto", group);
      EXPECT_EQ(trainer.state().step, 3);
      EXPECT_EQ(trainer.run(), Outcome::finished);
      return results(trainer, group);
    });
  }
  static Tensors results(const Trainer& trainer, const ProcessGroup& group) {
    Tensors out = end_of(trainer);
    if (!group.first()) return out;
    const Checkpoint checkpoint = checkpoint_of(trainer.state().folder);
    for (const auto& [name, tensor] : whole_state(checkpoint)) out["state." + name] = tensor;
    for (const auto& [name, tensor] : checkpoint.ema) out["average." + name] = tensor;
    return out;
  }
  /// Returns the results of a run without a store, whose ranks share its folder.
  std::vector<Tensors> expected() const {
    return run_ranks(4, [&](const ProcessGroup& group) {
      Trainer trainer(config({}, path("whole")), "none", group);
      EXPECT_EQ(trainer.run(), Outcome::finished);
      return results(trainer, group);
    });
  }
  static void expect_equal(const std::vector<Tensors>& got, const std::vector<Tensors>& expected) {
    for (std::size_t rank = 0; rank < got.size(); ++rank) tessera::expect_equal(got[rank], expected[rank]);
  }
  /// Lets the store refuse checkpoints.
  void refuse_checkpoints() {
    server_.answer([](const ServerRequest& request) {
      const bool stores = request.method == "PUT" && contains(request.path, "/checkpoints/");
      return stores ? std::optional(ServerReply{.status = 403}) : std::nullopt;
    });
  }
  bool is_stored(const std::string& name) { return server_.objects().contains("/b/run/" + name); }
  /// Returns the checkpoints that a machine has.
  std::vector<std::string> on(const std::string& disk) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(path(disk)))
      if (entry.path().filename() == "manifest.json") out.push_back(entry.path().parent_path().filename());
    return out;
  }
};

TEST_F(Machines, ContinueARunBitForBitWithoutACommonDisk) {
  const std::vector<Tensors> whole = expected();
  fail_on({"a"}, {"b"});
  EXPECT_EQ(on("a"), std::vector<std::string>{"step_0000003"});
  EXPECT_TRUE(on("b").empty());
  EXPECT_TRUE(is_stored("checkpoints/step_0000003/manifest.json"));
  expect_equal(continue_on({"c"}, {"d"}), whole);
  EXPECT_TRUE(is_stored("checkpoints/step_0000006/ema.safetensors"));
  EXPECT_TRUE(on("d").empty()) << "only rank 0's machine keeps checkpoints";
}

TEST_F(Machines, GetACheckpointThatTheStoreLacksFromAnyOfThem) {
  const std::vector<Tensors> whole = expected();
  for (const auto& [first, second] : {std::pair("a", "b"), std::pair("b", "a")}) {
    SCOPED_TRACE(first);
    for (const char* disk : {"a", "b"}) fs::remove_all(path(disk));
    server_.remove_all();
    refuse_checkpoints();
    fail_on({"a"}, {"b"});
    EXPECT_FALSE(is_stored("checkpoints/step_0000003/manifest.json"));
    server_.answer({});
    expect_equal(continue_on({first}, {second}), whole);
  }
}

TEST_F(Machines, KeepTheRunsHistoryAndItsBestCheckpointWhenRank0Moves) {
  const auto session = [&](const char* first, const char* second, int fails_in) {
    const Config of_run = config({"checkpoint.keep_last=1", "checkpoint.every_steps=2", "evaluation.every_steps=2",
                                  "evaluation.tasks=[{name: validation_loss}]",
                                  "checkpoint.keep_best={metric: validation_loss.loss, mode: min}"});
    run({first}, {second}, [&](const ProcessGroup& group) { return fail_in(fails_in, group, of_run); });
  };
  session("a", "b", 4);
  const std::string best = server_.objects().at("/b/run/checkpoints/best");
  session("a", "b", 4);  // dies before it saves again
  session("b", "a", 4);
  EXPECT_EQ(server_.objects().at("/b/run/checkpoints/best"), best);
  session("c", "b", 6);
  const std::string rows = server_.objects().at("/b/run/metrics.jsonl");
  for (const char* row : {"\"step\":1,", "\"step\":2,", "\"step\":3,", "\"step\":4,"}) EXPECT_TRUE(contains(rows, row)) << rows;
}

TEST_F(Machines, ReplaceADamagedCheckpoint) {
  const std::vector<Tensors> whole = expected();
  fail_on({"a"}, {"b"});
  fs::copy(path("a"), path("b"), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  for (const auto& entry : fs::recursive_directory_iterator(path("b")))
    if (entry.path().filename() == "model.safetensors") fs::resize_file(entry.path(), 1000);
  expect_equal(continue_on({"a"}, {"b"}), whole);
}

TEST_F(Machines, MayHaveLocalFoldersOfTheirOwnBesideAMirror) {
  const std::vector<std::string> mirror{"run.mirror=s3://b/run"};
  run({"a"}, {"b"}, [&](const ProcessGroup& group) { return fail_in(5, group, config(mirror, path("cache/own"))); });
  EXPECT_EQ(on("a"), std::vector<std::string>{"step_0000003"});
  EXPECT_FALSE(is_stored("checkpoints/step_0000003/optimizer_0000_of_0004.safetensors"));
}

TEST_F(Machines, WriteTheirPartsIntoAFolderThatTheyShare) {
  run({"a", "disk"}, {"b", "disk"}, [&](const ProcessGroup& group) {
    EXPECT_EQ(Trainer(config(), "auto", group).run(), Outcome::finished);
    return Tensors();
  });
  EXPECT_TRUE(is_stored("checkpoints/step_0000006/optimizer_0003_of_0004.safetensors"));
}

TEST_F(Machines, CompareTheirConfigurationsFirst) {
  run_ranks(2, [&](const ProcessGroup& group) {
    const Config own = group.first() ? config() : config({}, path("local"));
    const std::string error = error_of([&] { Trainer(own, "auto", group); });
    EXPECT_TRUE(contains(error, group.first() ? "rank 1 failed at comparing configurations" : "has a different configuration")) << error;
    return Tensors();
  });
}

TEST_F(Machines, StartAStageFromThePreviousOne) {
  const std::string file = path("stages.yaml");
  io::write_file(file, tiny_yaml() + "run: {folder: \"s3://b/run\"}\nstages:\n  - {name: one, training: {steps: 2}}\n"
                                     "  - {name: two, training: {steps: 3}}\n");
  const auto train = [&](const std::string& folder, const ProcessGroup& group) {
    const std::vector<Stage> stages = load_stages(file, {"run.folder=" + folder, "data.cache.folder=" + path("cache"), "data.cache.retries=0",
                                                         "data.loader.batch_size=4"});
    if (error_of([&] { run_stages(stages, "auto", group); }) != "no error") return Tensors();
    return group.first() ? checkpoint_of(stages[1].config.run.path(), 3).model.weights : Tensors();
  };
  const auto whole = run_ranks(4, [&](const ProcessGroup& group) { return train(path("whole"), group); });
  ASSERT_FALSE(whole[0].empty());
  // The first session ends because the store refuses the first stage's checkpoint. The next one stores it before the second stage.
  refuse_checkpoints();
  EXPECT_TRUE(run({"a"}, {"b"}, [&](const ProcessGroup& group) { return train("s3://b/run", group); })[0].empty());
  EXPECT_FALSE(is_stored("one/checkpoints/step_0000002/manifest.json"));
  server_.answer({});
  expect_equal(run({"a"}, {"b"}, [&](const ProcessGroup& group) { return train("s3://b/run", group); }), whole);
  EXPECT_TRUE(is_stored("one/checkpoints/step_0000002/manifest.json"));
}

TEST_F(Machines, RefuseACheckpointThatOnlyOneOfThemHas) {
  run_ranks(4, [&](const ProcessGroup& group) {
    EXPECT_EQ(Trainer(config({}, path("whole")), "none", group).run(), Outcome::finished);
    return Tensors();
  });
  const auto error = [&](const Machine& first, const Machine& second, const std::string& resume, int rank) {
    run(first, second, [&](const ProcessGroup& group) {
      const std::string text = error_of([&] { Trainer(config({"training.steps=7"}, "s3://b/other"), resume, group); });
      if (group.rank() == rank) io::write_file(path("error"), text);
      EXPECT_NE(text, "no error");
      return Tensors();
    });
    return io::read_file(path("error"));
  };
  EXPECT_TRUE(contains(error({"a"}, {"b"}, path("whole"), 0),
                       "the ranks are on several machines, which have only the checkpoints of run.folder: continue with --resume auto, or "
                       "begin with these weights (start.weights)"));
  run({"e"}, {"f"}, [&](const ProcessGroup& group) { return fail_in(5, group, config({}, "s3://b/other")); });
  server_.remove_all();
  EXPECT_EQ(error({"f"}, {"e"}, "none", 2),
            "run.folder of e: already holds checkpoints up to step 3: continue with --resume auto, or choose another run.folder");
}

}  // namespace
}  // namespace tessera
