#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/stages.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

class StagesTest : public RunTest {
 protected:
  StagesTest() { register_test_modules(); }

  // Writes a configuration of the tiny run with these stages and with the run folder `name`. Returns the file's path.
  std::string file(const std::string& name, const std::string& stages) const {
    const std::string path = folder_ / (name + ".yaml");
    io::write_file(path, tiny_yaml() + "run: {folder: \"" + (folder_ / name) + "\"}\nstages:\n" + stages);
    return path;
  }
  Weights weights(const std::string& run, std::int64_t step) const { return checkpoint_of(folder_ / run, step).model.weights; }
};

constexpr const char* kTwo = R"(  - {name: images, parameters: {frozen: [text]}, training: {steps: 3}}
  - {name: all, objective: {name: siglip}, training: {steps: 4}, optimizer: {lr: 1.0e-3}}
)";

TEST_F(StagesTest, OverrideTheSettingsOfTheFile) {
  const std::vector<Stage> stages =
      load_stages(file("run", kTwo), {"stages.1.training.steps=5", "seed=7", "checkpoint.copy_to=copies"});
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].config.objective.name, "clip");
  EXPECT_EQ(stages[0].config.parameters.frozen, std::vector<std::string>{"text"});
  EXPECT_EQ(stages[0].config.run.folder, folder_ / "run/images");
  EXPECT_EQ(stages[0].config.checkpoint.copy_to, "copies/images");
  EXPECT_FALSE(stages[0].follows);
  EXPECT_EQ(stages[1].config.objective.name, "siglip");
  EXPECT_TRUE(stages[1].config.parameters.frozen.empty());
  EXPECT_EQ(stages[1].config.training.steps, 5);
  EXPECT_EQ(stages[1].config.seed, 7);
  EXPECT_EQ(stages[1].config.start.weights->name, folder_ / "run/images");
  EXPECT_TRUE(stages[1].follows);
  const std::vector<Stage> fresh =
      load_stages(file("fresh", std::string(kTwo) + "  - {name: new, start: {weights: null}}\n"));
  EXPECT_FALSE(fresh[2].follows);
  EXPECT_FALSE(fresh[2].config.start.weights.has_value());
}

TEST_F(StagesTest, WarnAboutAnOverruledOverrideAndNameTheEffectiveKey) {
  const std::vector<Stage> stages =
      load_stages(file("run", kTwo), {"training.steps=2", "optimizer={lr: 0.5, weight_decay: 0.1}", "seed=7",
                                      "stages.1.training.steps=5", "training.precision=float32"});
  EXPECT_EQ(stages[0].overruled, (std::vector<std::string>{"training.steps"}));
  EXPECT_EQ(stages[1].overruled, (std::vector<std::string>{"optimizer", "training.steps"}));
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  warn_of_stages(stages);
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* line : {"--set training.steps: has no effect, because the file sets the key for stages images and all: set "
                           "stages.0.training.steps and stages.1.training.steps\n",
                           "--set optimizer: has no effect, because the file sets the key for stage all: set stages.1.optimizer\n"})
    EXPECT_TRUE(contains(said, line));
  EXPECT_FALSE(contains(said, "seed"));

  // If a stage and an override set a key to the same value, the override is not reported as having no effect.
  EXPECT_TRUE(load_stages(file("same", kTwo), {"training.steps=4"})[1].overruled.empty());
}

TEST_F(StagesTest, EachStartsWhereThePreviousEnds) {
  const std::string stages = R"(  - {name: a, training: {steps: 2}}
  - {name: b, training: {steps: 2}, optimizer: {lr: 0, weight_decay: 0}}
)";
  EXPECT_EQ(run_stages(load_stages(file("run", stages)), "none").first, Outcome::finished);
  expect_equal(weights("run/a", 2), weights("run/b", 2));
}

TEST_F(StagesTest, AMovedRunFolderIsResumedWhereItLies) {
  namespace fs = std::filesystem;
  const std::string base = train("base", {"training.steps=2"}), moved = folder_ / "moved";
  fs::rename(base, moved);
  const std::vector<Stage> stages = load_stages(moved + "/config.yaml", {"training.steps=4"});
  EXPECT_TRUE(contains(stages[0].moved, "config.yaml: was moved from the run folder " + base + ": the run uses its own folder, " + moved));
  EXPECT_EQ(run_stages(stages, "auto").first, Outcome::finished);
  EXPECT_TRUE(fs::exists(moved + "/checkpoints/step_0000004"));
  EXPECT_TRUE(contains(io::read_file(moved + "/log.txt"), "resumed from " + moved));
  EXPECT_FALSE(fs::exists(base));
  EXPECT_EQ(load_config(moved + "/config.yaml").run.folder, moved);
  EXPECT_EQ(load_config(moved + "/config.yaml", {"run.folder=" + base}).run.folder, base);
  fs::create_directory_symlink(moved, folder_ / "latest");
  EXPECT_EQ(load_stages(folder_ / "latest/config.yaml")[0].moved, "");
}

TEST_F(StagesTest, ACopyOfARunLeavesTheOriginalAlone) {
  namespace fs = std::filesystem;
  const std::string base = train("base", {"training.steps=2"}), copy = folder_ / "copy";
  fs::copy(base, copy, fs::copy_options::recursive);
  const std::string log = io::read_file(base + "/log.txt"), config = io::read_file(copy + "/config.yaml");
  io::write_file(copy + "/config.yaml", "# my notes\n" + config);
  EXPECT_EQ(run_stages(load_stages(copy + "/config.yaml", {"training.steps=4"}), "auto").first, Outcome::finished);
  EXPECT_TRUE(fs::exists(copy + "/checkpoints/step_0000004"));
  EXPECT_FALSE(fs::exists(base + "/checkpoints/step_0000004"));
  EXPECT_EQ(io::read_file(base + "/log.txt"), log);

  train("stored", {"training.steps=2", "checkpoint.copy_to=" + (folder_ / "store")});
  fs::copy(folder_ / "stored", folder_ / "other", fs::copy_options::recursive);
  EXPECT_TRUE(contains(error_of([&] { load_stages(folder_ / "other/config.yaml"); }), "stores its checkpoints by checkpoint.copy_to"));
  EXPECT_EQ(error_of([&] { load_stages(folder_ / "other/config.yaml", {"checkpoint.copy_to=null"}); }), "no error");
}

TEST_F(StagesTest, AMovedStageStartsFromTheMovedStageBeforeIt) {
  namespace fs = std::filesystem;
  run_stages(load_stages(file("run", kTwo)), "none");
  fs::rename(folder_ / "run", folder_ / "moved");
  const Config second = load_config(folder_ / "moved/all/config.yaml");
  EXPECT_EQ(second.run.folder, folder_ / "moved/all");
  EXPECT_EQ(second.start.weights->name, folder_ / "moved/images");
}

TEST_F(StagesTest, AutoResumeSkipsFinishedStagesAndMatchesBitForBit) {
  run_stages(load_stages(file("whole", kTwo)), "none");
  const std::string broken = file("broken", kTwo);
  // Leaves the run as if it had been killed between its stages.
  run_stages(load_stages(broken, {"stages.0.training.steps=3"}), "auto");
  std::filesystem::remove_all(folder_ / "broken/all");
  const auto before = std::filesystem::last_write_time(folder_ / "broken/images/checkpoints/step_0000003");
  EXPECT_EQ(run_stages(load_stages(broken), "auto").first, Outcome::finished);
  EXPECT_EQ(std::filesystem::last_write_time(folder_ / "broken/images/checkpoints/step_0000003"), before);
  expect_equal(weights("broken/all", 4), weights("whole/all", 4));
}

TEST_F(StagesTest, AutoResumeRepeatsAMissingLastEvaluationOfATrainedStage) {
  const std::vector<Stage> stages = load_stages(file("run", kTwo), {"evaluation.tasks=[{name: knn, k: 1}]"});
  run_stages(stages, "none");
  const std::string evaluation = folder_ / "run/images/evaluation/step_0000003.json";
  EXPECT_TRUE(std::filesystem::remove(evaluation));  // as if a signal had cut the evaluation short
  EXPECT_EQ(run_stages(stages, "auto").first, Outcome::finished);
  EXPECT_TRUE(std::filesystem::exists(evaluation));
}

TEST_F(StagesTest, ErrorsNameTheStage) {
  const std::string a = folder_ / "a.yaml";
  const auto line = [](const std::string& text) { return text.substr(text.find(':', text.find(".yaml:") + 6) + 2); };
  EXPECT_EQ(line(error_of([&] { load_stages(file("a", "  - {training: {steps: 3}}\n")); })),
            "stages[0].name: missing: each stage needs a name, which also names its run folder");
  EXPECT_EQ(line(error_of([&] { load_stages(file("a", "  - {name: x}\n  - {name: x}\n")); })),
            "stages[1].name: is already the name of another stage: x");
  EXPECT_EQ(line(error_of([&] { load_stages(file("a", "  - {name: x/y}\n")); })),
            "stages[0].name: names a folder inside run.folder, so it must not contain /");
  EXPECT_EQ(line(error_of([&] { load_stages(file("a", "  - {name: x, training: {step: 3}}\n")); })),
            "training.step: unknown key: did you mean steps?");
  EXPECT_EQ(line(error_of([&] { load_stages(file("a", "  {}\n")); })),
            "stages: expected a list like [{name: first, training: {steps: 100}}, ...]");
  EXPECT_EQ(error_of([&] { run_stages(load_stages(file("run", kTwo)), a); }),
            "--resume " + a + ": a run with several stages can only be resumed with --resume auto");
}

}  // namespace
}  // namespace tessera
