// Tests the teacher, a second model that holds the moving average of the weights.
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/restore.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

class TeacherTest : public RunTest {
 protected:
  static Config config(const std::string& folder, const std::vector<std::string>& overrides = {}) {
    return tiny_config(folder, overrides, "test_teacher");
  }
  Checkpoint checkpoint(const std::string& run, std::int64_t step) const {
    return checkpoint_of(folder_ / run, step);
  }
  static void expect_close(const Weights& a, const Weights& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::allclose(tensor, b.at(name), 1e-5, 1e-6)) << name;
  }
};

TEST_F(TeacherTest, FollowsTheStudentAsComputedByHand) {
  const std::vector<std::string> settings{"training={steps: 5, device: cpu, clip_norm: null}",
                                          "optimizer={name: sgd, lr: 0.002, momentum: 0}",
                                          "schedule={schedule: constant, warmup_steps: 0}"};
  EXPECT_EQ(Trainer(config(folder_ / "run", settings), "none").run(), Outcome::finished);

  // Builds the same run twice. The model of the second run is the teacher, which the test updates by hand.
  TrainingRun student = build_training_run(config(folder_ / "hand", settings));
  TrainingRun teacher = build_training_run(config(folder_ / "hand", settings));
  teacher.model->eval();
  const Weights weights = collect_weights(*student.model, *student.objective),
                averages = collect_weights(*teacher.model, *teacher.objective);
  for (std::int64_t step = 0; step < 5; ++step) {
    const Batch batch = student.loader->next();
    Features features = student.model->forward(batch, student.needs);
    const at::NoGradGuard no_grad;
    features.teacher_images["image"] = teacher.model->encode_image(batch.images.at("image"));
    StepContext context;
    context.step = step;
    context.teacher = teacher.objective.get();
    student.optimizer->zero_grad();
    {
      const at::AutoGradMode gradients(true);
      student.objective->forward(features, context).total.backward();
    }
    for (const NamedParameter& each : student.optimizer->parameters())
      if (each.tensor.grad().defined()) at::Tensor(each.tensor).sub_(each.tensor.grad(), 0.002);
    student.objective->after_step(context);
    const double momentum = 0.5 + 0.1 * static_cast<double>(step);
    for (const auto& [name, average] : averages)
      at::Tensor(average).copy_(momentum * average + (1 - momentum) * weights.at(name));
  }
  const Checkpoint end = checkpoint("run", 5);
  expect_close(end.model.weights, weights);
  expect_close(end.teacher, averages);
  EXPECT_FALSE(at::allclose(end.teacher.at("visual.conv1.weight"), end.model.weights.at("visual.conv1.weight")));
}

TEST_F(TeacherTest, IsSavedAsAModelAndResumesBitForBit) {
  EXPECT_EQ(Trainer(config(folder_ / "whole"), "none").run(), Outcome::finished);
  EXPECT_EQ(Trainer(config(folder_ / "broken"), folder_ / "whole/checkpoints/step_0000003").run(), Outcome::finished);
  const Checkpoint whole = checkpoint("whole", 6), broken = checkpoint("broken", 6);
  expect_equal(whole.teacher, broken.teacher);
  expect_equal(whole.model.weights, broken.model.weights);
  expect_equal(whole.optimizer, broken.optimizer);
  const ModelFile file = load_model_file(folder_ / "whole/checkpoints/step_0000006/teacher.safetensors");
  expect_equal(file.weights, whole.teacher);
}

TEST_F(TeacherTest, DoesNotChangeInStepsWithoutAnUpdate) {
  const auto train = [&](const std::string& run, const std::vector<std::string>& overrides) {
    const std::vector<std::string> all{"training.ema={decay: 0.5}", "checkpoint={every_steps: 1, keep_last: 9}"};
    EXPECT_EQ(Trainer(config(folder_ / run, with(all, overrides)), "none").run(), Outcome::finished);
    const Checkpoint before = checkpoint(run, 2), after = checkpoint(run, 3);
    expect_equal(before.model.weights, after.model.weights);
    expect_equal(before.teacher, after.teacher);
    expect_equal(before.ema, after.ema);
    EXPECT_FALSE(
        at::equal(checkpoint(run, 6).teacher.at("visual.conv1.weight"), after.teacher.at("visual.conv1.weight")));
  };
  train("skip", {"training.non_finite=skip", "objective.nan_at=2"});
  train("fp16", {"training.precision=fp16", "objective.overflow_at=2"});
  Trainer stopped(config(folder_ / "stop", {"checkpoint.every_steps=2", "objective.nan_at=2"}), "none");
  EXPECT_EQ(stopped.run(), Outcome::not_finite);
  const TrainingRun& run = stopped.training_run();
  expect_equal(collect_weights(*run.model, *run.objective), checkpoint("stop", 2).model.weights);
  expect_equal(run.teacher->ema.averages(), checkpoint("stop", 2).teacher);
}

TEST_F(TeacherTest, NamesABadTeacherFile) {
  const std::string run = folder_ / "run", newest = run + "/checkpoints/step_0000006",
                    file = newest + "/teacher.safetensors";
  Trainer(config(run), "none").run();
  const auto resume = [&] { return error_of([&] { Trainer(config(folder_ / "other"), newest); }); };
  const Checkpoint good = load_checkpoint(newest);
  CheckpointFolder folder(run + "/checkpoints", 9);

  Checkpoint other = good;
  other.teacher["visual.proj"] = at::zeros({3, 3});
  folder.save(other);
  EXPECT_EQ(resume(), file + ": visual.proj has shape [3, 3], expected [16, 8]");
  other.teacher.clear();
  folder.save(other);
  EXPECT_EQ(resume(), file + ": missing, but the objective keeps a teacher");
  folder.save(good);
  std::filesystem::resize_file(file, 100);
  EXPECT_TRUE(resume().starts_with(file + ": damaged: 100 bytes, the manifest says ")) << resume();
  std::filesystem::remove(file);
  EXPECT_EQ(resume(), file + ": missing");
}

}  // namespace
}  // namespace tessera
