// Tests runs that learn from teachers: a live frozen model (`distill`), and stored embeddings (`affinity`).
#include <filesystem>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/memory/dry_run.h"
#include "src/training/run/stored_teachers.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr const char* kSmallCrops = "data.loader.augmentation={crop: random, scale: [0.3, 1], flip: 0.5}";

class DistillRun : public RunTest {
 protected:
  /// Trains a teacher whose embeddings have `width` columns. Returns its folder.
  std::string teacher(const std::string& name = "teacher", std::int64_t width = 12) const {
    const std::string projection = concat(".projection={name: linear, embed_dim: ", width, "}");
    return train(name, {concat("seed=", width), "model.image" + projection, "model.text" + projection, "training.steps=3"});
  }
  static std::vector<std::string> distilled(const std::string& teacher, const std::vector<std::string>& more = {}) {
    return with({"objective={name: distill, teacher: " + teacher + "}", kSmallCrops}, more);
  }
  std::vector<std::string> taught(const std::vector<std::string>& more = {}) const {
    return with({"objective={name: affinity, lambda: 0.5, teachers: [{width: 12, temperature: 0.1}, {width: 7, temperature: 0.05}]}",
                 concat("data.teachers={folder: ", folder_ / "embeddings", ", models: [", folder_ / "a", ", ", folder_ / "b",
                        "], crops: 2, dtype: float32}"),
                 kSmallCrops},
                more);
  }
  void write_embeddings() const {
    teacher("a", 12);
    teacher("b", 7);
    write_teachers(tiny_config(folder_ / "writer", taught()));
  }
  std::string error_of_run(const std::vector<std::string>& overrides) const {
    return error_of([&] { Trainer(tiny_config(folder_ / "wrong", overrides), "none"); });
  }
};

void expect_both_terms(const std::string& run, double contrast, double distillation) {
  const auto curve = rows(run);
  ASSERT_EQ(curve.size(), 6U);
  for (const auto& row : curve) {
    const auto value = [&](const char* term) { return row.at("terms").at(term).get<double>(); };
    EXPECT_NEAR(row.at("loss").get<double>(), contrast * value("loss_contrast") + distillation * value("loss_distillation"), 1e-5);
    EXPECT_GT(value("loss_distillation"), 0);
  }
}

TEST_F(DistillRun, LearnsFromAFrozenModelThatIsNoPartOfItsCheckpoint) {
  const std::string model = teacher();
  const auto before = io::read_file(model + "/checkpoints/step_0000003/model.safetensors");
  Trainer trainer(tiny_config(folder_ / "run", distilled(model)), "none");
  Weights fixed;
  for (const auto& [name, tensor] : trainer.training_run().teacher->model->state_dict()) fixed[name] = tensor.clone();
  EXPECT_FALSE(trainer.training_run().teacher->model->is_training());
  EXPECT_EQ(trainer.run(), Outcome::finished);
  expect_both_terms(folder_ / "run", 1, 1);
  expect_equal(trainer.training_run().teacher->model->state_dict(), fixed);
  for (const at::Tensor& parameter : trainer.training_run().teacher->model->parameters()) EXPECT_FALSE(parameter.requires_grad());
  EXPECT_EQ(before, io::read_file(model + "/checkpoints/step_0000003/model.safetensors"));

  const Checkpoint end = checkpoint_of(folder_ / "run");
  EXPECT_TRUE(end.teacher.empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/step_0000006/teacher.safetensors"));
  EXPECT_NE(end.config.find("teacher: " + model), std::string::npos) << "the checkpoint names the teacher";
}

TEST_F(DistillRun, ResumesBitForBit) {
  const std::string model = teacher();
  train("whole", distilled(model));
  train("again", distilled(model), folder_ / "whole/checkpoints/step_0000003");
  expect_equal(checkpoint_of(folder_ / "again").model.weights, checkpoint_of(folder_ / "whole").model.weights);
}

TEST_F(DistillRun, MicroBatchesChangeNothing) {
  const std::string model = teacher();
  const std::vector<std::string> accumulated = {"training.accumulation=2"};
  train("whole", distilled(model, accumulated));
  train("parts", distilled(model, with(accumulated, {"training.micro_batch=3"})));
  expect_same_curve(folder_ / "whole", folder_ / "parts", 1e-4);
}

TEST_F(DistillRun, MeasuresBothTermsDuringTheRunAndTheContrastAfterwards) {
  const std::string model = teacher();
  train("run", distilled(model, {"evaluation.tasks=[{name: validation_loss}]"}));
  const auto json = nlohmann::json::parse(io::read_file(folder_ / "run/evaluation/step_0000006.json"))["tasks"][0]["metrics"];
  EXPECT_TRUE(json.contains("loss_distillation")) << json;
  EXPECT_NEAR(json.at("loss").get<double>(), json.at("loss_contrast").get<double>() + json.at("loss_distillation").get<double>(), 1e-5);
}

TEST_F(DistillRun, IsPlannedByADryRun) {
  const std::string model = teacher();
  const Config config = tiny_config(folder_ / "run", distilled(model)), alone = tiny_config(folder_ / "run", {kSmallCrops});
  const DryRunReport report = dry_run(config);
  EXPECT_TRUE(report.warnings.empty()) << report.warnings.front();
  EXPECT_GT(report.memory.weights, dry_run(alone).memory.weights) << "the teacher's weights take memory, too";
}

TEST_F(DistillRun, SaysWhatIsWrongWithATeacher) {
  const std::string model = teacher();
  const auto contains = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(error_of_run({"objective={name: distill}"}), "objective: distill needs a model to learn from: set objective.teacher");
  contains(error_of_run(distilled(folder_ / "nothing")), "nothing does not exist");
  contains(error_of_run(distilled(model, {"evaluation.weights=teacher"})),
           "evaluation.weights is teacher, but the objective distill learns from a model that is not trained: set it to model");
  const std::string short_texts = train("short", {"tokenizer.context_length=8", "training.steps=1"});
  contains(error_of_run(distilled(short_texts)), "takes texts of 8 tokens, but the run's tokenizer makes 24");
  contains(error_of_run({"objective={name: weighted_sum, objectives: [{name: distill, teacher: " + model + "}, {name: distill, label: b, "
                         "teacher: /b}]}"}),
           "a run has one teacher");
}

TEST_F(DistillRun, TakesImagesOfAnotherSizeThanItsTeacher) {
  const std::string model = teacher();
  train("run", distilled(model, {"model.preprocessing.image_size=24", "training.steps=2"}));
  EXPECT_EQ(rows(folder_ / "run").size(), 2U);
}

TEST_F(DistillRun, StoredEmbeddingsBelongToTheCropAndTheCaptionThatAreShown) {
  write_embeddings();
  const TrainingRun run = build_training_run(tiny_config(folder_ / "run", taught({"data.loader.caption_choice=random"})));
  std::vector<Teacher> teachers;
  for (const char* name : {"a", "b"})
    teachers.push_back(load_teacher(folder_ / name, run.model->settings().preprocessing, run.tokenizer.get(), at::kCPU));
  const at::NoGradGuard no_grad;
  std::set<std::int64_t> epochs;
  for (int i = 0; i < 20; ++i) {
    const Batch batch = run.loader->next();
    epochs.insert(run.loader->epoch());
    std::vector<at::Tensor> images, texts;
    for (const Teacher& teacher : teachers) {
      images.push_back(unit_rows(teacher.model->encode_image(batch.images.at("image")).global));
      texts.push_back(unit_rows(teacher.model->encode_text(batch.texts.at("caption")).global));
    }
    EXPECT_TRUE(at::allclose(batch.images.at("image").taught, at::cat(images, 1), 1e-4, 1e-5)) << "batch " << i;
    EXPECT_TRUE(at::allclose(batch.texts.at("caption").taught, at::cat(texts, 1), 1e-4, 1e-5)) << "batch " << i;
  }
  EXPECT_GE(epochs.size(), 3U) << "the crops start again after the second epoch";
}

TEST_F(DistillRun, StoredEmbeddingsTrainWithMicroBatchesAndResumeBitForBitAfterTheirFolderMoved) {
  write_embeddings();
  train("whole", taught());
  expect_both_terms(folder_ / "whole", 0.5, 0.5);
  train("parts", taught({"training.micro_batch=3"}));
  expect_same_curve(folder_ / "whole", folder_ / "parts", 1e-4);
  std::filesystem::rename(folder_ / "embeddings", folder_ / "moved");
  train("again", taught({"data.teachers.folder=" + (folder_ / "moved")}), folder_ / "whole/checkpoints/step_0000003");
  expect_equal(checkpoint_of(folder_ / "again").model.weights, checkpoint_of(folder_ / "whole").model.weights);
}

TEST_F(DistillRun, SaysWhatIsWrongWithStoredEmbeddings) {
  const auto contains = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(error_of_run(taught({"data.teachers=null"})), "objective affinity needs embeddings of teachers: set data.teachers to");
  contains(error_of_run(taught()), "write them with trainer --write-features");
  write_embeddings();
  contains(error_of_run(taught({"seed=9"})), "holds embeddings made with other settings: seed");
  contains(error_of_run(taught({"data.loader.augmentation.scale=[0.5, 1]"})), "data.loader.augmentation.scale");
  contains(error_of_run(taught({"data.teachers.models=[" + (folder_ / "a") + "]"})), "data.teachers.models");
  contains(error_of_run(taught({"objective.teachers=[{width: 12, temperature: 1}]"})),
           "holds embeddings of 19 columns, but the widths in objective.teachers add up to 12");
  EXPECT_EQ(error_of([&] { write_teachers(tiny_config(folder_ / "wrong", {"data.teachers={folder: x, models: [" + (folder_ / "a") + "]}"})); }),
            "--write-features: the objective clip does not use embeddings of teachers: set data.teachers to null");
  const auto other_data = [&] {
    Trainer trainer(tiny_config(folder_ / "other", taught({"data.train.seed=77"})), "none");
    trainer.run();
  };
  contains(error_of(other_data), "holds nothing for sample");
}

}  // namespace
}  // namespace tessera
