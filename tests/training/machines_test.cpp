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
  Machines() { variables_.set("AWS_NO_SIGN_REQUEST", "true"); }

  void SetUp() override {
    register_test_modules();
    fs::create_directories(path("cache"));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(moved_to("probe") ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) GTEST_SKIP() << "this user may not make namespaces";
  }

  /// Moves this process to a machine. Returns false if that is not allowed.
  bool moved_to(const std::string& machine) const {
    fs::create_directories(path(machine));
    return ::unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0 && ::sethostname(machine.data(), machine.size()) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount(path(machine).c_str(), path("cache").c_str(), nullptr, MS_BIND, nullptr) == 0;
  }

  /// Runs `body` in four ranks, two on each of the machines.
  std::vector<Tensors> run(const std::string& first, const std::string& second, const std::function<Tensors(const ProcessGroup&)>& body) const {
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

  /// Trains until the machines fail in step 5.
  Tensors fail_in_step_5(const ProcessGroup& group) const {
    Trainer trainer(config(), "auto", group);
    step_observer() = [](const StepContext& context) {
      if (context.step == 4) user_error("the machines fail");
    };
    EXPECT_TRUE(contains(error_of([&] { trainer.run(); }), "the machines fail"));
    return {};
  }
  Tensors continue_to_the_end(const ProcessGroup& group, const std::vector<std::string>& more = {}) const {
    Trainer trainer(config(more), "auto", group);
    EXPECT_EQ(trainer.state().step, 3);
    EXPECT_EQ(trainer.run(), Outcome::finished);
    return results(trainer, group);
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
  /// Returns the checkpoints that a machine has.
  std::vector<std::string> on(const std::string& machine) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(path(machine)))
      if (entry.path().filename() == "manifest.json") out.push_back(entry.path().parent_path().filename());
    return out;
  }
};

TEST_F(Machines, ContinueARunBitForBitWithoutACommonDisk) {
  const std::vector<Tensors> whole = expected();
  run("a", "b", [&](const ProcessGroup& group) { return fail_in_step_5(group); });
  EXPECT_EQ(on("a"), std::vector<std::string>{"step_0000003"});
  EXPECT_TRUE(on("b").empty());
  EXPECT_TRUE(server_.objects().contains("/b/run/checkpoints/step_0000003/manifest.json"));
  expect_equal(run("c", "d", [&](const ProcessGroup& group) { return continue_to_the_end(group); }), whole);
  EXPECT_TRUE(server_.objects().contains("/b/run/checkpoints/step_0000006/ema.safetensors"));
}

TEST_F(Machines, GetACheckpointThatTheStoreLacksFromRank0) {
  const std::vector<Tensors> whole = expected();
  server_.answer([](const ServerRequest& request) {
    const bool stores = request.method == "PUT" && contains(request.path, "/checkpoints/");
    return stores ? std::optional(ServerReply{.status = 403}) : std::nullopt;
  });
  run("a", "b", [&](const ProcessGroup& group) { return fail_in_step_5(group); });
  EXPECT_FALSE(server_.objects().contains("/b/run/checkpoints/step_0000003/manifest.json"));
  server_.answer({});
  expect_equal(run("a", "b", [&](const ProcessGroup& group) { return continue_to_the_end(group); }), whole);
  EXPECT_EQ(on("b"), std::vector<std::string>{"step_0000003"}) << "the one that rank 0 had";
}

TEST_F(Machines, ReplaceADamagedCheckpointAndDeleteOthers) {
  const std::vector<Tensors> whole = expected();
  run("a", "b", [&](const ProcessGroup& group) { return fail_in_step_5(group); });
  fs::copy(path("a"), path("b"), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  for (const auto& entry : fs::recursive_directory_iterator(path("b"))) {
    if (entry.path().filename() == "model.safetensors") fs::resize_file(entry.path(), 1000);
    if (entry.path().filename() == "checkpoints") fs::create_directories(entry.path() / "step_0000001");
  }
  expect_equal(run("a", "b", [&](const ProcessGroup& group) { return continue_to_the_end(group); }), whole);
  EXPECT_EQ(on("b"), std::vector<std::string>{"step_0000003"});
}

TEST_F(Machines, StartAStageFromThePreviousOne) {
  const std::string file = path("stages.yaml");
  io::write_file(file, tiny_yaml() + "run: {folder: \"s3://b/run\"}\nstages:\n  - {name: one, training: {steps: 2}}\n"
                                     "  - {name: two, training: {steps: 3}}\n");
  const auto train = [&](const std::string& folder, const ProcessGroup& group) {
    const std::vector<Stage> stages =
        load_stages(file, {"run.folder=" + folder, "data.cache.folder=" + path("cache"), "data.loader.batch_size=4"});
    EXPECT_EQ(run_stages(stages, "auto", group).first, Outcome::finished);
    return group.first() ? checkpoint_of(stages[1].config.run.path(), 3).model.weights : Tensors();
  };
  const auto whole = run_ranks(4, [&](const ProcessGroup& group) { return train(path("whole"), group); });
  expect_equal(run("a", "b", [&](const ProcessGroup& group) { return train("s3://b/run", group); }), whole);
}

TEST_F(Machines, RefuseACheckpointThatOnlyOneOfThemHas) {
  run_ranks(4, [&](const ProcessGroup& group) {
    EXPECT_EQ(Trainer(config({}, path("whole")), "none", group).run(), Outcome::finished);
    return Tensors();
  });
  run("a", "b", [&](const ProcessGroup& group) {
    const std::string error = error_of([&] { Trainer(config({"training.steps=7"}, "s3://b/other"), path("whole"), group); });
    const std::string expected = group.first() ? "the ranks are on several machines, which have only the checkpoints of run.folder: continue "
                                                 "with --resume auto, or begin with these weights (start.weights)"
                                               : "rank 0 failed at storing the checkpoint";
    EXPECT_TRUE(contains(error, expected)) << error;
    return Tensors();
  });
}

}  // namespace
}  // namespace tessera
