// Trains several systems on one and two ranks, and resumes runs that were killed. Outside run_ranks, this process must not compute
// anything; ranks.h says why.
#include <csignal>
#include <filesystem>
#include <functional>
#include <ostream>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "src/objectives/dino.h"
#include "src/objectives/pyramidclip.h"
#include "src/objectives/stair.h"
#include "src/objectives/weighted_sum.h"
#include "src/training/run/image_features.h"
#include "src/training/stages.h"
#include "src/training/trainer.h"
#include "tests/distributed/ranks.h"
#include "tests/support/test_name.h"
#include "tests/training/any_views.h"
#include "tests/training/stair_run.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

const std::vector<std::string> kSaveOften = {"checkpoint.every_steps=2", "checkpoint.background=false"};

struct SystemCase {
  std::string name;
  std::string kind;  // as in system_config()
  std::vector<std::string> overrides = {};
  std::function<void(const std::string& one, const std::string& two)> compare = {};  // compares the rows of two runs
  double absolute = 1e-4;  // absolute tolerance of the final weights
  bool cached = false;     // trains on cached image features
};
void PrintTo(const SystemCase& given, std::ostream* out) {
  *out << given.name;
}

/// Trains on batches of 8 samples over all ranks. Returns end_of() of the run.
Tensors train_system(Config config, int ranks) {
  config.data.loader.batch_size = 8 / ranks;
  return run_ranks(ranks, [&](const ProcessGroup& group) {
    Trainer trainer(config, "auto", group);
    trainer.run();
    return end_of(trainer);
  })[0];
}

void expect_same_losses(const std::string& one, const std::string& two) {
  const auto ours = rows(one), theirs = rows(two);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i]["loss"].get<double>(), theirs[i]["loss"].get<double>(), 2e-4) << "step " << i + 1;
}

/// Compares the numbers of each row under `key`, within tolerance * (1 + value).
void expect_same_numbers(const std::string& one, const std::string& two, const char* key, double tolerance) {
  const auto ours = rows(one), theirs = rows(two);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    for (const auto& [name, value] : ours[i][key].items())
      EXPECT_NEAR(theirs[i][key][name].get<double>(), value.get<double>(), tolerance * (1 + value.get<double>()))
          << name << ", step " << i + 1;
}

void expect_same_losses_and_norms(const std::string& one, const std::string& two) {
  expect_same_curve(one, two, 2e-4);
}
void expect_same_terms(const std::string& one, const std::string& two) {
  expect_same_numbers(one, two, "terms", 2e-4);
}
void expect_same_losses_and_statistics(const std::string& one, const std::string& two) {
  expect_same_losses(one, two);
  expect_same_numbers(one, two, "statistics", 0.02);
}

class SystemTest : public ::testing::TestWithParam<SystemCase> {
 protected:
  TemporaryFolder folder_;
};

using SystemOverRanks = SystemTest;

// The key bias does not affect attention, so its gradient is rounding noise. With a small eps, AdamW and LAMB would scale it up to a
// full step.
constexpr const char* kNoRounding = "optimizer.eps=1.0e-4";

INSTANTIATE_TEST_SUITE_P(
    Systems, SystemOverRanks,
    ::testing::Values(
        SystemCase{"dino", "dino", {kNoRounding}, expect_same_losses}, SystemCase{"silc", "silc", {kNoRounding}, expect_same_losses},
        SystemCase{"siglip2", "siglip2", {kNoRounding}, expect_same_losses},
        SystemCase{"any_views", "any_views", {}, expect_same_losses_and_norms},
        SystemCase{"pyramidclip", "pyramidclip", {}, expect_same_losses_and_norms},
        SystemCase{"stair", "stair", {kNoRounding, "objective.text_token_mask=true"}, expect_same_losses_and_statistics, 1e-3},
        SystemCase{"text_group_mean", "text_group", {kNoRounding, "training.steps=4", "objective.reconstruction_reduction=mean"},
                   expect_same_terms, 1e-3},
        SystemCase{"text_group_sum", "text_group", {kNoRounding, "training.steps=4", "objective.reconstruction_reduction=sum"},
                   expect_same_terms, 1e-3},
        SystemCase{"cached_features", "{name: sparc}", {}, expect_same_losses, 1e-3, true}),
    test_name<SystemCase>);

TEST_P(SystemOverRanks, TrainsTheSameOnOneAndTwoRanks) {
  const SystemCase& given = GetParam();
  const auto config = [&](const std::string& run) {
    return (given.cached ? cached_config : system_config)(given.kind, folder_.path(), run, given.overrides);
  };
  if (given.cached)
    run_ranks(1, [&](const ProcessGroup&) {
      write_image_features(config("one"));
      return Tensors();
    });
  const Tensors one = train_system(config("one"), 1), two = train_system(config("two"), 2);
  given.compare(folder_ / "one", folder_ / "two");
  bool moved = false;
  for (const auto& [name, tensor] : one) {
    EXPECT_TRUE(at::allclose(tensor, two.at(name), 1e-3, given.absolute)) << name;
    moved = moved || (name.ends_with("loss.center") && tensor.abs().max().item<double>() > 1e-3);
  }
  EXPECT_EQ(moved, std::set<std::string>({"dino", "silc", "siglip2"}).contains(given.kind)) << "the center of the teacher's outputs";
}

// Checks that the second rank really lacks views in the case `pyramidclip` above.
TEST(PyramidShards, LackViewsOnTheSecondRank) {
  const TemporaryFolder folder;
  const Config config = system_config("pyramidclip", folder.path(), "run", {"data.loader.batch_size=4"});
  const auto absent = run_ranks(2, [&](const ProcessGroup& group) {
    const Batch batch = build_training_run(config, group).loader->next();
    return Tensors{{"regions", batch.images.at("roi").mask.any(1).logical_not().sum()},
                   {"summary", batch.texts.at("summary").mask.any(1).logical_not().sum()},
                   {"objects", batch.texts.at("objects").mask.any(1).logical_not().sum()}};
  });
  for (const auto& [view, samples] : Tensors(absent[0])) EXPECT_EQ(samples.item<std::int64_t>(), 0) << view;
  EXPECT_EQ(absent[1].at("regions").item<std::int64_t>(), 4);
  EXPECT_EQ(absent[1].at("summary").item<std::int64_t>(), 2);
  EXPECT_EQ(absent[1].at("objects").item<std::int64_t>(), 2);
}

TEST(ImageFeaturesOverRanks, OtherEncoderWeightsStopEveryRank) {
  const TemporaryFolder folder;
  const auto ends = run_ranks(2, [&](const ProcessGroup& group) {
    Config config = cached_config("{name: clip}", folder.path(), "run", {"data.loader.batch_size=4"});
    if (group.first()) write_image_features(config);
    at::Tensor written = at::zeros({1});
    group.all_reduce(written);
    config.seed = 4;
    const std::string error = error_of([&] { Trainer(config, "none", group); });
    const char* expected = group.first() ? "of an image encoder with other weights" : "checking the image features";
    return Tensors{{"told", at::full({1}, error.find(expected) != std::string::npos, at::kBool)}};
  });
  for (const Tensors& end : ends) EXPECT_TRUE(end.at("told").item<bool>());
}

/// Acts like Base for the first killed_at() updates. The next forward pass kills this process.
template <class Base>
class Killed : public Base {
 public:
  using Base::Base;
  Losses forward(const Features& features, const StepContext& context) override {
    if (context.step == killed_at()) ::raise(SIGKILL);
    return Base::forward(features, context);
  }
};

template <class Base, class Settings>
void register_killed(const std::string& name) {
  if (objectives().contains("test_killed_" + name)) return;
  objectives().add<Settings>("test_killed_" + name, name + " until a step", [](const Settings& settings, const ObjectiveContext& context) {
    return std::make_shared<Killed<Base>>(settings, context);
  });
}

/// If the configuration's objective has a variant Killed (defined above), replaces the objective by this variant.
Config killed(Config config) {
  register_killed<Dino, DinoSettings>("dino");
  register_killed<PyramidClip, PyramidClipSettings>("pyramidclip");
  register_killed<Stair, StairSettings>("stair");
  register_killed<WeightedSum, WeightedSumSettings>("weighted_sum");
  const std::string name = "test_killed_" + config.objective.name;
  if (objectives().contains(name)) config.objective.name = name;
  return config;
}

/// Calls `body` in a new process and expects it to be killed after `step` updates.
void expect_killed(std::int64_t step, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // as in run_ranks
    killed_at() = step;
    body();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

using KilledSystem = SystemTest;

INSTANTIATE_TEST_SUITE_P(
    Systems, KilledSystem,
    ::testing::Values(SystemCase{"dino", "dino"}, SystemCase{"siglip2", "siglip2"}, SystemCase{"any_views", "any_views"},
                      SystemCase{"pyramidclip", "pyramidclip"},
                      SystemCase{"superclip", "{name: weighted_sum, objectives: [{name: clip}, {name: superclip}]}", {"training.accumulation=2"}}),
    test_name<SystemCase>);

TEST_P(KilledSystem, ResumesBitForBit) {
  const auto config = [&](const std::string& run) {
    return killed(system_config(GetParam().kind, folder_.path(), run, with(kSaveOften, GetParam().overrides)));
  };
  const Tensors unbroken = train_system(config("unbroken"), 1);
  ASSERT_NO_FATAL_FAILURE(expect_killed(5, [&] { Trainer(config("broken"), "none").run(); }));
  ASSERT_TRUE(std::filesystem::exists(folder_ / "broken/checkpoints/step_0000004"));
  const Tensors resumed = train_system(config("broken"), 1);
  expect_equal(resumed, unbroken);
  if (const auto count = resumed.find("objective.objectives.superclip.caption_count"); GetParam().name == "superclip") {
    ASSERT_NE(count, resumed.end());
    EXPECT_EQ(count->second.item<std::int64_t>(), 6 * 16);
  }
}

TEST(KilledStages, ResumeBitForBitAfterBeingKilledInTheSecond) {
  const TemporaryFolder folder;
  const auto stages = [&](const std::string& name) {
    const std::string path = folder / (name + ".yaml");
    io::write_file(path, stair_yaml() + "run: {folder: \"" + (folder / name) + "\"}\n" + stair_stages());
    std::vector<Stage> out = load_stages(path, kSaveOften);
    out.at(1).config = killed(out.at(1).config);
    return out;
  };
  const auto train = [&](const std::string& name) {
    return run_ranks(1, [&](const ProcessGroup& group) {
      run_stages(stages(name), "auto", group);
      return checkpoint_of(folder / (name + "/joint"), 4).model.weights;
    })[0];
  };
  const Tensors unbroken = train("unbroken");
  ASSERT_NO_FATAL_FAILURE(expect_killed(3, [&] { run_stages(stages("broken"), "auto"); }));
  ASSERT_TRUE(std::filesystem::exists(folder / "broken/frozen_image/checkpoints/step_0000002"));
  ASSERT_FALSE(std::filesystem::exists(folder / "broken/frozen_image/checkpoints/step_0000004"));
  expect_equal(train("broken"), unbroken);
}

}  // namespace
}  // namespace tessera
