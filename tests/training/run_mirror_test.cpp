// Tests runs that are stored in an object store, against a server in this process.

#include "src/training/checkpoint/run_mirror.h"

#include <atomic>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/remote/local_copy.h"
#include "tests/remote/remote_fixture.h"
#include "tests/support/test_data.h"
#include "tests/training/tiny_run.h"
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using remote::FakeServer;
using remote::ServerReply;
using remote::ServerRequest;
using Names = std::set<std::string>;

/// Returns what is wrong with the checkpoints under /b/run/ that a reader sees; empty if all are whole.
std::string first_fault(const std::map<std::string, std::string>& objects) {
  const std::string folder = "/b/run/checkpoints/";
  for (const auto& [path, manifest] : objects) {
    if (!path.starts_with(folder) || !path.ends_with("/manifest.json")) continue;
    const nlohmann::json files = nlohmann::json::parse(manifest).at("files");
    for (const auto& [name, facts] : files.items()) {
      const auto file = objects.find(fs::path(path).parent_path() / name);
      if (file == objects.end()) return path + " names " + name + ", which does not exist";
      if (file->second.size() != facts.at("bytes").get<std::size_t>()) return path + " names another " + name;
    }
  }
  for (const char* pointer : {"latest", "best"})
    if (const auto found = objects.find(folder + pointer); found != objects.end()) {
      const std::string step = found->second.substr(0, found->second.find_first_of(" \n"));
      if (!objects.contains(folder + step + "/manifest.json"))
        return concat(pointer, " names ", step, ", which is not whole");
    }
  return {};
}

class Mirrors : public remote::Remote {
 protected:
  Mirrors() {
    register_test_modules();
    variables_.set("AWS_NO_SIGN_REQUEST", "true");
    remote::use_settings(settings());
    server_.answer([this](const ServerRequest& request) -> std::optional<ServerReply> {
      if (std::string fault = first_fault(server_.objects()); !fault.empty())
        ADD_FAILURE() << "before " << request.text() << ": " << fault;
      return refuse_ && refuse_(request) ? std::optional(ServerReply{.status = 403}) : std::nullopt;
    });
  }
  ~Mirrors() override { step_observer() = {}; }

  Config config(const std::string& name, const std::vector<std::string>& more = {},
                const std::string& objective = "clip") const {
    return tiny_config(
        path(name), with({"run.mirror=s3://b/run", "data.cache.folder=" + path("cache"), "data.cache.retries=0"}, more),
        objective);
  }
  /// Returns the names of the checkpoints in the store that a reader sees.
  Names stored() {
    Names out;
    for (const auto& [path, bytes] : server_.objects())
      if (path.starts_with("/b/run/") && path.ends_with("/manifest.json"))
        out.insert(fs::path(path).parent_path().filename());
    return out;
  }
  Names local(const std::string& run) const {
    Names out;
    for (const std::string& each : CheckpointFolder(path(run) + "/checkpoints", 1).list())
      out.insert(fs::path(each).filename());
    return out;
  }
  /// Makes a folder with checkpoints of these steps. `text` differs between runs.
  void make_run(const std::string& name, const std::vector<int>& steps, const std::string& text = "") const {
    CheckpointFolder folder(path(name) + "/checkpoints", 100);
    for (const int step : steps) {
      Checkpoint checkpoint;
      checkpoint.optimizer["step"] = at::scalar_tensor(step, at::kLong);
      checkpoint.model.weights["x"] = at::full({3}, step);
      checkpoint.state.step = step;
      checkpoint.config = text;
      folder.save(checkpoint);
    }
    write(name + "/metrics.jsonl", text);
  }

  std::function<bool(const ServerRequest&)> refuse_;  // requests that the store denies
};

TEST_F(Mirrors, AStoredRunContinuesBitForBitOnABareMachine) {
  const std::vector<std::string> settings = {"checkpoint.every_steps=2", "checkpoint.keep_last=1"};
  Trainer whole(tiny_config(path("whole"), settings, "test_observed"), "none");
  whole.run();
  {
    Trainer first(config("first", settings, "test_observed"), "none");
    step_observer() = [](const StepContext& context) {
      if (context.step == 4) user_error("the machine fails");
    };
    EXPECT_EQ(error_of([&] { first.run(); }), "the machine fails");
    step_observer() = {};
  }
  EXPECT_EQ(stored(), Names{"step_0000004"});
  fs::remove_all(path("first"));
  Trainer second(config("second", settings, "test_observed"), "auto");
  EXPECT_EQ(second.state().step, 4);
  EXPECT_EQ(second.run(), Outcome::finished);
  expect_equal(end_of(second), end_of(whole));
  EXPECT_EQ(stored(), Names{"step_0000006"});
  EXPECT_EQ(rows(path("second")).size(), 6U) << "the rows of the first machine are fetched, too";
  for (const char* name : {"config.yaml", "log.txt", "metrics.jsonl", "run.html", "changes.jsonl"})
    EXPECT_EQ(server_.objects().at(concat("/b/run/", name)), io::read_file(path("second") + "/" + name)) << name;
  EXPECT_FALSE(server_.objects().contains("/b/run/checkpoints/step_0000004/model.safetensors"));
  expect_equal(load_for_inference("s3://b/run", "cpu").file.weights, checkpoint_of(path("second")).model.weights);

  Trainer again(config("again", settings, "test_observed"), "auto");
  EXPECT_EQ(again.state().step, 6);
  EXPECT_EQ(error_of([&] { Trainer(config("fresh", settings, "test_observed"), "none"); }),
            "s3://b/run/: already holds checkpoints up to step 6: continue with --resume auto, or choose another "
            "run.mirror (or run.folder)");
}

TEST_F(Mirrors, ARunStartsFromModelsInAStore) {
  for (const auto& entry : fs::directory_iterator(test_data("foreign/dinov3")))
    server_.put("/b/dinov3/" + entry.path().filename().string(), io::read_file(entry.path()));
  const auto begun = [&](const std::string& name, const std::vector<std::string>& overrides) {
    config::Node tree = config::parse_yaml(tiny_yaml(), "tiny.yaml");
    for (const std::string& each :
         with({"run.folder=" + path(name), "data.cache={folder: " + path("cache") + "}"}, overrides))
      config::apply_override(tree, each);
    return Trainer(resolve_config(tree, name), "none");
  };
  const auto from = [](const std::string& folder) {
    return std::vector<std::string>{"model.image=null",
                                    "model.image={from: " + folder + ", projection: {name: linear, embed_dim: 8}}"};
  };
  expect_equal(end_of(begun("stored", from("s3://b/dinov3"))),
               end_of(begun("local", from(test_data("foreign/dinov3")))));
  const Config written = load_config(path("stored/config.yaml"));
  EXPECT_EQ(written.start.image->name, "s3://b/dinov3");

  Trainer earlier(config("earlier"), "none");
  earlier.run();
  expect_equal(end_of(begun("weights", {"start.weights=s3://b/run", "seed=4"})), end_of(earlier));
  EXPECT_EQ(error_of([&] { begun("none", {"start.weights=s3://b/none.pt"}); }),
            "--set: start.weights: s3://b/none.pt: there is no such object");
  EXPECT_EQ(Trainer(config("again", {"run.mirror=null"}), "s3://b/run").state().step, 6) << "--resume with an address";
}

TEST_F(Mirrors, TheNewerOfTheLocalAndTheStoredCheckpointIsTaken) {
  make_run("a", {1, 2}, "a");
  RunMirror(config("a"), path("a")).update();
  EXPECT_EQ(stored(), (Names{"step_0000001", "step_0000002"}));
  {
    SCOPED_TRACE("the store is newer");
    make_run("b", {1}, "b");
    RunMirror(config("b"), path("b")).begin("auto");
    EXPECT_EQ(local("b"), (Names{"step_0000001", "step_0000002"}));
    EXPECT_EQ(load_checkpoint(path("b/checkpoints/step_0000002")).config, "a");
    EXPECT_EQ(io::read_file(path("b/metrics.jsonl")), "a");
    EXPECT_EQ(io::read_file(path("b/checkpoints/latest")), "step_0000002\n");
  }
  {
    SCOPED_TRACE("another checkpoint of the same step");
    make_run("c", {2}, "c");
    RunMirror(config("c"), path("c")).begin("auto");
    EXPECT_EQ(load_checkpoint(path("c/checkpoints/step_0000002")).config, "a");
  }
  {
    SCOPED_TRACE("the local checkpoint is damaged");
    make_run("d", {2, 3}, "a");
    fs::resize_file(path("d/checkpoints/step_0000003/state.safetensors"), 5);
    fs::resize_file(path("d/checkpoints/step_0000002/state.safetensors"), 5);
    RunMirror(config("d"), path("d")).begin("auto");
    EXPECT_EQ(load_checkpoint(path("d/checkpoints/step_0000002")).config, "a");
  }
  {
    SCOPED_TRACE("the local folder is newer");
    make_run("e", {2, 3, 4}, "e");
    RunMirror mirror(config("e"), path("e"));
    mirror.begin("auto");
    EXPECT_EQ(io::read_file(path("e/metrics.jsonl")), "e");
    mirror.update();
    EXPECT_EQ(stored(), (Names{"step_0000003", "step_0000004"})) << "keep_last is 2";
    EXPECT_EQ(server_.objects().at("/b/run/checkpoints/latest"), "step_0000004\n");
  }
  {
    SCOPED_TRACE("the stored checkpoint is damaged");
    std::string bytes = server_.objects().at("/b/run/checkpoints/step_0000004/state.safetensors");
    bytes.back() ^= 1;
    server_.put("/b/run/checkpoints/step_0000004/state.safetensors", bytes);
    RunMirror(config("f"), path("f")).begin("auto");
    EXPECT_EQ(local("f"), Names{"step_0000003"});
  }
}

TEST_F(Mirrors, WithDamagedStoredCheckpointsTheLocalOneIsTakenAndStored) {
  make_run("a", {1, 2});
  BestFile(path("a/checkpoints"), {.metric = "a.loss"}).write({1, 0.5});
  RunMirror(config("a"), path("a")).update();
  const auto damage = [&](const std::string& step) {
    const std::string object = "/b/run/checkpoints/" + step + "/state.safetensors";
    std::string bytes = server_.objects().at(object);
    bytes.back() ^= 1;
    server_.put(object, bytes);
  };
  damage("step_0000001");
  RunMirror(config("b"), path("b")).begin("auto");
  EXPECT_EQ(local("b"), Names{"step_0000002"}) << "without the best one";
  EXPECT_FALSE(fs::exists(path("b/checkpoints/best")));
  damage("step_0000002");
  EXPECT_EQ(error_of([&] { RunMirror(config("c"), path("c")).begin("auto"); }),
            "s3://b/run/checkpoints/step_0000001/state.safetensors: damaged: its checksum differs from the manifest's");
  make_run("d", {1});
  RunMirror mirror(config("d"), path("d"));
  mirror.begin("auto");
  EXPECT_EQ(local("d"), Names{"step_0000001"});
  make_run("d", {2});
  mirror.update();
  EXPECT_EQ(stored(), (Names{"step_0000001", "step_0000002"}));
  RunMirror(config("e"), path("e")).begin("auto");
  EXPECT_EQ(local("e"), Names{"step_0000002"}) << "stored again, although its manifest is the same";
}

TEST_F(Mirrors, ARunThatGoesBackReplacesItsLaterCheckpoints) {
  make_run("a", {1, 2, 4}, "first");
  const Config of_a = config("a", {"checkpoint.keep_last=3"});
  RunMirror mirror(of_a, path("a"));
  mirror.begin("none");
  mirror.update();
  make_run("a", {3}, "second");
  mirror.update();
  EXPECT_EQ(server_.objects().at("/b/run/checkpoints/latest"), "step_0000003\n");
  EXPECT_EQ(stored(), (Names{"step_0000001", "step_0000002", "step_0000003"})) << "step 4 is out of date";
  make_run("a", {4}, "second");
  mirror.update();
  EXPECT_EQ(stored(), (Names{"step_0000002", "step_0000003", "step_0000004"}));
  make_run("a", {3}, "third");
  make_run("a", {4}, "third");
  mirror.update();
  RunMirror(config("b"), path("b")).begin("auto");
  EXPECT_EQ(load_checkpoint(path("b/checkpoints/step_0000004")).config, "third");
}

TEST_F(Mirrors, TheNewestCheckpointStaysIfAKilledProcessHasNotNamedIt) {
  const auto begun = [&](const std::string& name, const std::vector<std::string>& settings) {
    make_run("a", {1, 2});
    write("a/checkpoints/latest", "step_0000001\n");
    const Config of_a = config("a", settings);
    RunMirror mirror(of_a, path("a"));
    mirror.begin("auto");
    fs::remove(path("a/checkpoints/step_0000001/manifest.json"));
    mirror.finish();
    EXPECT_EQ(stored(), Names{"step_0000002"}) << name;
    EXPECT_EQ(server_.objects().at("/b/run/checkpoints/latest"), "step_0000002\n");
  };
  begun("a store without checkpoints", {});
  begun("a store with this checkpoint", {"checkpoint.keep_last=1"});
}

TEST_F(Mirrors, ACheckpointThatIsWrittenMeanwhileIsNotNamedBeforeItIsStored) {
  make_run("a", {1});
  std::atomic<bool> written = false;
  refuse_ = [&](const ServerRequest& request) {
    if (request.method == "PUT" && request.path.ends_with("step_0000001/manifest.json") && !written.exchange(true)) make_run("a", {2});
    return false;
  };
  RunMirror mirror(config("a"), path("a"));
  mirror.update();
  EXPECT_EQ(stored(), Names{"step_0000001"});
  EXPECT_EQ(server_.objects().at("/b/run/checkpoints/latest"), "step_0000001\n");
  mirror.update();
  EXPECT_EQ(server_.objects().at("/b/run/checkpoints/latest"), "step_0000002\n");
}

TEST_F(Mirrors, WhatAnEarlierTrainerStoresUntilItIsTakenOverIsNotLost) {
  make_run("a", {1});
  RunMirror(config("a"), path("a")).update();
  make_run("a", {2});
  refuse_ = [&](const ServerRequest& request) {
    if (request.method == "PUT" && request.path == "/b/run/trainer.lock")
      for (const auto& entry : fs::directory_iterator(path("a/checkpoints/step_0000002")))
        server_.put(concat("/b/run/checkpoints/step_0000002/", entry.path().filename().string()), io::read_file(entry.path()));
    return false;
  };
  RunMirror(config("b"), path("b")).begin("auto");
  EXPECT_EQ(local("b"), Names{"step_0000002"});
}

TEST_F(Mirrors, StoredCheckpointsAreKeptAsLocalOnes) {
  make_run("a", {10, 15, 20, 25, 30, 35});
  const BestFile best(path("a/checkpoints"), {.metric = "a.loss"});
  best.write({15, 0.5});
  RunMirror mirror(config("a", {"checkpoint.keep_every=20", "checkpoint.keep_last=2"}), path("a"));
  mirror.update();
  EXPECT_EQ(stored(), (Names{"step_0000015", "step_0000020", "step_0000030", "step_0000035"}));
  RunMirror(config("b"), path("b")).begin("auto");
  EXPECT_EQ(local("b"), (Names{"step_0000015", "step_0000035"})) << "the best one and the newest one";
  EXPECT_EQ(BestFile(path("b/checkpoints"), {.metric = "a.loss"}).read()->step, 15);
}

TEST_F(Mirrors, AFailedUploadIsMadeUpLater) {
  make_run("a", {1});
  RunMirror mirror(config("a"), path("a"));
  mirror.begin("none");
  mirror.update();
  make_run("a", {2});
  for (const char* at : {"model.safetensors", "manifest.json"}) {
    refuse_ = [at](const ServerRequest& request) { return request.method == "PUT" && request.path.ends_with(at); };
    EXPECT_EQ(error_of([&] { mirror.update(); }),
              concat("s3://b/run/checkpoints/step_0000002/", at,
                     ": access is denied (HTTP 403): check the credentials, and their rights in the bucket"));
    EXPECT_EQ(stored(), Names{"step_0000001"});
  }
  EXPECT_EQ(error_of([&] { mirror.finish(); }),
            concat("s3://b/run/checkpoints/step_0000002/manifest.json: access is denied (HTTP 403): check the "
                   "credentials, and their rights in the "
                   "bucket; the run is complete in ",
                   path("a"), ", but not in s3://b/run/: start it again with --resume auto, which stores the rest"));
  refuse_ = {};
  server_.put("/b/run/checkpoints/step_0000003/other.safetensors", "of a process that was killed");
  mirror.finish();
  EXPECT_EQ(stored(), (Names{"step_0000001", "step_0000002"}));
  EXPECT_FALSE(server_.objects().contains("/b/run/checkpoints/step_0000003/other.safetensors"));
}

TEST_F(Mirrors, TrainingGoesOnWithoutTheStoreAndTheEndTells) {
  {
    Trainer trainer(config("a", {"checkpoint.every_steps=2"}), "none");
    refuse_ = [](const ServerRequest& request) { return request.method == "PUT"; };
    const std::string error = error_of([&] { trainer.run(); });
    EXPECT_EQ(trainer.state().step, 6);
    EXPECT_TRUE(error.ends_with(concat("; the run is complete in ", path("a"),
                                       ", but not in s3://b/run/: start it again with --resume auto, "
                                       "which stores the rest")))
        << error;
  }
  EXPECT_EQ(stored(), Names());
  refuse_ = {};
  Trainer again(config("a", {"checkpoint.every_steps=2"}), "auto");
  EXPECT_EQ(again.run(), Outcome::finished);
  EXPECT_EQ(stored(), (Names{"step_0000004", "step_0000006"}));
}

TEST_F(Mirrors, ATrainerThatBeganLaterTakesTheStoreOver) {
  make_run("a", {1});
  RunMirror first(config("a"), path("a"));
  first.begin("none");
  first.update();
  RunMirror second(config("b"), path("b"));
  second.begin("auto");
  make_run("a", {2});
  const auto taken_over = [](const std::string& error) {
    return error.starts_with("s3://b/run/: another trainer, process ") &&
           error.ends_with(", stores this run now: this trainer ends; choose another run.folder for one of them");
  };
  EXPECT_NO_THROW(first.check_owner());
  EXPECT_PRED1(taken_over, error_of([&] { first.update(); }));
  EXPECT_PRED1(taken_over, error_of([&] { first.check_owner(); }));
  EXPECT_EQ(stored(), Names{"step_0000001"});
  make_run("b", {3});
  // A third one begins while the second one stores a checkpoint.
  std::atomic<bool> begun = false;
  refuse_ = [&](const ServerRequest& request) {
    if (request.method == "PUT" && request.path.ends_with("step_0000003/state.safetensors") && !begun.exchange(true))
      server_.put("/b/run/trainer.lock", "process 3\n");
    return false;
  };
  EXPECT_PRED1(taken_over, error_of([&] { second.update(); }));
  EXPECT_EQ(stored(), Names{"step_0000001"});
}

TEST_F(Mirrors, FilesOfOtherRunsAndLocksStayWhereTheyAre) {
  make_run("a", {1});
  for (const char* name : {"trainer.lock", "log.txt.tmp.77", "features/x",
                           "first/checkpoints/step_0000009/manifest.json", "evaluation/step_1.json"})
    write(concat("a/", name), "x");
  const std::string features = fs::relative(path("a/features"));
  RunMirror(config("a", {"data.features={folder: " + features + "/}"}), path("a")).update();
  Names names;
  for (const auto& [path, bytes] : server_.objects())
    if (path.find("checkpoints") == std::string::npos) names.insert(path);
  EXPECT_EQ(names, (Names{"/b/run/evaluation/step_1.json", "/b/run/metrics.jsonl", "/b/run/trainer.lock"}));
  for (const char* name : {"../outside", "checkpoints/step_0000001/../../../outside"}) server_.put(concat("/b/run/", name), "x");
  server_.put("/b/run/checkpoints/step_0000001/" + path("absolute"), "x");
  server_.put("/b/run/other/checkpoints/step_0000001/model.safetensors", "x");
  RunMirror(config("b"), path("b")).begin("auto");
  EXPECT_FALSE(fs::exists(path("outside")));
  EXPECT_FALSE(fs::exists(path("absolute")));
  EXPECT_FALSE(fs::exists(path("b/other")));
  EXPECT_TRUE(fs::exists(path("b/evaluation/step_1.json")));
}

TEST_F(Mirrors, AFolderInAStoreIsAMirrorOfAFolderInTheCache) {
  const Config remote = tiny_config("s3://b/deep/run/", {"data.cache.folder=" + path("cache")});
  EXPECT_EQ(remote.run.mirror, "s3://b/deep/run");
  const std::string folder = remote.run.path();
  EXPECT_TRUE(folder.starts_with(path("cache/runs/"))) << folder;
  EXPECT_TRUE(folder.ends_with("-run")) << folder;
  EXPECT_EQ(tiny_config("s3://b/deep/run", {"data.cache.folder=" + path("cache")}).run.path(), folder);
  EXPECT_EQ(error_of([&] { config("s", {"run.folder=s3://b/other"}); }),
            "--set: run.folder: is in a store, and run.mirror is set, too: set run.mirror to null, or run.folder to a "
            "local folder");
  EXPECT_EQ(error_of([&] { config("s", {"run.mirror=https://host/run"}); }),
            "--set: run.mirror: https://host/run: expected s3://BUCKET/PATH or gs://BUCKET/PATH");
}

}  // namespace
}  // namespace tessera
