// Tests runs of `dino`, with and without a contrastive loss.
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/trainer.h"
#include "tests/training/dino_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/evaluation/evaluate.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

class DinoRun : public RunTest {
 protected:
  // Trains for `steps` updates. Returns copies of the weights and buffers.
  static Weights weights_after(std::int64_t steps, Config config) {
    config.training.steps = std::max<std::int64_t>(1, steps);
    config.run.folder = concat(*config.run.folder, "_", steps);
    Trainer trainer(config, "none");
    if (steps > 0) trainer.run();
    Weights out;
    for (const auto& [name, tensor] : collect_weights(*trainer.training_run().model, *trainer.training_run().objective))
      out[name] = tensor.detach().clone();
    return out;
  }
  nlohmann::json measured(const std::string& run, std::int64_t step) const {
    const std::string file = folder_ / (run + "/evaluation/" + step_folder_name(step) + ".json");
    return nlohmann::json::parse(io::read_file(file)).at("tasks");
  }
};

TEST_F(DinoRun, UpdatesStudentTeacherAndCenterAndTheLastLayerOnceItIsUnfrozen) {
  struct Run {
    decltype(&dino_config) make;
    std::string of_objective;
  };
  for (const auto& [make, of_objective] :
       {Run{dino_config, "objective."}, Run{silc_config, "objective.objectives.dino."},
        Run{siglip2_config, "objective.objectives.distillation."}, Run{siglip2_config, "objective.objectives.masked_prediction."}}) {
    const Config config = make(folder_ / of_objective, {});
    const Weights start = weights_after(0, config), frozen = weights_after(2, config), moved = weights_after(3, config);
    const auto changed = [&](const Weights& later, const std::string& name) {
      return !at::equal(start.at(name), later.at(name));
    };
    EXPECT_FALSE(changed(frozen, of_objective + "head.last_layer.weight_v"));
    EXPECT_TRUE(changed(moved, of_objective + "head.last_layer.weight_v"));
    EXPECT_FALSE(changed(moved, of_objective + "head.last_layer.weight_g"));
    for (const std::string& name :
         {of_objective + "head.mlp.0.weight", of_objective + "loss.center", std::string("visual.conv1.weight")})
      EXPECT_TRUE(changed(frozen, name)) << name;
    const Checkpoint end = checkpoint_of(folder_ / (of_objective + "_3"), 3);
    EXPECT_TRUE(changed(end.teacher, "visual.conv1.weight"));
    EXPECT_FALSE(at::equal(end.teacher.at("visual.conv1.weight"), moved.at("visual.conv1.weight")));
  }
}

TEST_F(DinoRun, WeighsEachLossNextToAContrastiveLoss) {
  Trainer(silc_config(folder_ / "run"), "none").run();
  const auto curve = rows(folder_ / "run");
  ASSERT_EQ(curve.size(), 6U);
  for (const auto& row : curve) {
    const auto value = [&](const char* term) { return row.at("terms").at(term).get<double>(); };
    EXPECT_NEAR(row.at("loss").get<double>(),
                0.5 * value("clip_0.loss") + 0.5 * value("clip_1.loss") + value("dino.loss"), 1e-4);
  }
}

TEST_F(DinoRun, EvaluatesTheTeacherFromBeforeTheFirstStep) {
  const auto train = [&](const std::string& run, const std::string& weights) {
    const Config config = dino_config(
        folder_ / run, {"objective.teacher_momentum=1", "evaluation={at_start: true, weights: " + weights +
                                                            ", tasks: [{name: linear_probe, l2: 0.01}, knn]}"});
    Trainer(config, "none").run();
  };
  train("teacher", "teacher");
  EXPECT_EQ(measured("teacher", 0)[0].at("metrics"), measured("teacher", 6)[0].at("metrics"))
      << "a teacher with momentum 1 does not change";
  train("student", "model");
  EXPECT_EQ(measured("student", 0)[0].at("metrics"), measured("teacher", 0)[0].at("metrics"));
  EXPECT_NE(measured("student", 6)[0].at("metrics"), measured("teacher", 6)[0].at("metrics"));

  EvaluateOptions options;
  options.checkpoint = folder_ / "teacher/checkpoints/step_0000006/teacher.safetensors";
  options.out = folder_ / "out";
  EXPECT_EQ(evaluate(options), 0) << "the tasks of the run's configuration";
  const auto results = nlohmann::json::parse(io::read_file(folder_ / "out/results.json")).at("tasks");
  ASSERT_EQ(results.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(results[i].at("metrics"), measured("teacher", 6)[i].at("metrics"));
}

TEST_F(DinoRun, ReportsMistakes) {
  const auto error = [&](const Config& config) { return error_of([&] { Trainer(config, "none"); }); };
  EXPECT_EQ(error(silc_config(folder_ / "a", {"model.text=null", "tokenizer=null"})),
            "objective: needs the text caption, but model.text is null");
  EXPECT_EQ(error(dino_config(folder_ / "b", {"objective.local_crops=3"})),
            "the objective asks for the image view local_2, but the data pipeline makes only: image, global_0 to "
            "global_1 and local_0 to local_1; add others to data.loader.views");
  EXPECT_EQ(
      error(dino_config(folder_ / "c", {"data.loader.views.local.image_size=10"})),
      "data.loader.views: the image tower does not accept local_0, which is 10 x 10 pixels: vit: images must be [B, "
      "3, H, W] with H and W multiples of 4 and 4, got [1, 3, 10, 10]");
  EXPECT_EQ(
      error(dino_config(folder_ / "d", {"training.cuda_graph=true"})),
      "training.cuda_graph: the objective dino depends on the step number, but a recorded step never changes: "
      "set it to false");
}

// The test shortens the configurations and replaces the tokenizer of shapes_silc with test_letters.
TEST_F(DinoRun, TrainsTheShippedSmallConfigurations) {
  for (const std::string name : {"shapes_dino", "shapes_silc"}) {
    register_test_modules();
    std::vector<std::string> overrides = {
        "run.folder=" + (folder_ / name), "training.steps=2",         "data.train.size=64",
        "data.validation.size=32",        "data.loader.batch_size=8", "schedule={warmup_steps: 1}",
        "evaluation.every_steps=0",       "log.every_steps=1"};
    if (name == "shapes_silc") overrides.push_back("tokenizer={name: test_letters}");
    Trainer trainer(load_config(name, overrides), "none");
    EXPECT_EQ(trainer.run(), Outcome::finished);
    EXPECT_TRUE(std::isfinite(rows(folder_ / name).back()["loss"].get<double>())) << name;
  }
}

}  // namespace
}  // namespace tessera
