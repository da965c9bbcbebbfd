#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/models/packed_rows.h"
#include "src/models/per_sample_rng.h"
#include "src/optim/grad_norm_groups.h"
#include "src/optim/sgd.h"
#include "src/training/step/step_graph.h"
#include "tests/models/small_models.h"
#include "tests/training/repeater.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using Update = StepGraph::Update;

GraphInputs inputs_of(std::int64_t step, std::int64_t rows = 4) {
  at::manual_seed(static_cast<std::uint64_t>(step) + 1);
  GraphInputs out;
  out.batch.images["image"] = image_input(at::randint(256, {rows, 3, 16, 16}, at::kByte));
  out.batch.texts["caption"] = text_input(at::randint(1, 20, {rows, 8}, at::kLong), at::ones({rows, 8}, at::kBool));
  out.batch.labels = at::arange(rows);
  out.rows = row_keys(7, step * rows, 1, rows);
  out.weight = at::scalar_tensor(0.5 + static_cast<double>(step), at::kFloat);
  return out;
}

// A model, an objective and an optimizer on a device, and the work of one training step.
struct Trained {
  explicit Trained(const at::Device& where, at::ScalarType type = at::kFloat) : device(where) {
    at::manual_seed(3);
    ModelSettings s = small_sparc();
    model = std::make_unique<DualEncoder>(s);
    model->to(device, type);
    config::ModuleSettings choice;
    choice.name = "sparc";
    choice.settings = settings("{}");
    objective = objectives().make(choice, "objective", ObjectiveContext{model->embed_dim()});
    objective->to(device, type);
    for (const at::Tensor& parameter : model->parameters()) parameters.push_back(parameter);
    for (const at::Tensor& parameter : objective->parameters()) parameters.push_back(parameter);
    std::vector<NamedParameter> named;
    for (const at::Tensor& parameter : parameters)
      named.push_back({.name = std::to_string(named.size()), .tensor = parameter});
    named[0].frozen_steps = 5;  // frozen until after the recording
    optimizer = std::make_unique<Sgd>(named, SgdSettings{});
  }

  GraphInputs on_device(GraphInputs inputs) const {
    inputs.batch = inputs.batch.to(device);
    inputs.rows = inputs.rows.to(device);
    inputs.weight = inputs.weight.to(device);
    return inputs;
  }
  Losses work(const GraphInputs& inputs) const {
    const RowRngScope keyed(inputs.rows);
    Losses losses = objective->forward(model->forward(inputs.batch, objective->needs()), {});
    (losses.total * inputs.weight).backward();
    return losses;
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> out;
    for (const at::Tensor& parameter : parameters)
      out.push_back(parameter.grad().defined() ? parameter.grad().cpu().clone() : at::zeros({1}));
    return out;
  }
  // Updates the weights after both passes. The update is not recorded, because the learning rate and the weight decay change and one
  // parameter is frozen at first.
  void descend(std::int64_t step) const {
    clip_gradients(*optimizer, grad_norm_groups(*optimizer), 0.5, ClipMode::per_tensor);
    optimizer->step(1e-3 * static_cast<double>(step + 1), 0.1 * static_cast<double>(step));
  }

  at::Device device;
  std::unique_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<Sgd> optimizer;
};

// Trains with and without a recording. Expects the same losses and gradients in each step.
void expect_same_steps(const at::Device& device, std::unique_ptr<WorkRecorder> recorder, Update update, double tolerance,
                       Trained& played) {
  const Trained plain(device);
  const at::Tensor first = played.parameters[0].detach().cpu().clone();
  StepGraph graph(std::move(recorder), played.parameters, update, [&](const GraphInputs& in) { return played.work(in); });
  for (std::int64_t step = 0; step < 8; ++step) {
    const GraphInputs inputs = played.on_device(inputs_of(step));
    for (at::Tensor parameter : plain.parameters) parameter.mutable_grad().reset();
    graph.zero_gradients();
    const double expected = plain.work(inputs).total.item<double>();
    EXPECT_NEAR(graph.run(inputs).total.item<double>(), expected, tolerance * (1 + std::abs(expected))) << step;
    const auto ours = played.gradients(), theirs = plain.gradients();
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_TRUE(at::allclose(ours[i], theirs[i], tolerance, tolerance)) << "step " << step << ", parameter " << i;
    plain.descend(step);
    played.descend(step);
    EXPECT_EQ(at::equal(played.parameters[0].cpu(), first), step < 5) << step;
  }
}

TEST(StepGraph, ReplayedStepsMatchTheOperators) {
  for (const Update update : {Update::one_batch, Update::several_batches}) {
    Trained played(at::kCPU);
    expect_same_steps(at::kCPU, std::make_unique<Repeater>(played.parameters), update, 0, played);
  }
}

TEST(StepGraph, ReplayedStepsMatchTheOperatorsOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const Update update : {Update::one_batch, Update::several_batches}) {
    Trained played(at::kCUDA);
    expect_same_steps(at::kCUDA, make_cuda_recorder(), update, 1e-5, played);
  }
}

// One recording is replayed for captions of many lengths, so the recorded work sees only a bound on their sum.
TEST(StepGraph, WorkSeesOnlyABoundOnTextLengths) {
  const at::Tensor w = at::ones({1}).requires_grad_();
  int calls = 0;
  StepGraph graph(std::make_unique<Repeater>(std::vector{w}), {w}, Update::several_batches, [&](const GraphInputs& in) {
    ++calls;
    EXPECT_EQ(bound_of(in.batch.texts.at("caption").lengths), kPackingBucket);
    Losses losses;
    losses.total = w.sum();
    losses.total.backward();
    return losses;
  });
  GraphInputs inputs = inputs_of(0);
  inputs.batch.texts["caption"].lengths = at::full({4}, 8, at::kLong);
  for (int i = 0; i < 5; ++i) graph.run(inputs);
  EXPECT_EQ(calls, 6) << "three rehearsals, a recording, two replays";
}

TEST(StepGraph, SumsTheGradientsOfSeveralBatches) {
  const at::Tensor w = at::ones({3, 16, 16}).requires_grad_();
  const auto work = [&](const GraphInputs& in) {
    Losses losses;
    losses.total = (in.batch.images.at("image").pixels.to(at::kFloat) * w).sum();
    (losses.total * in.weight).backward();
    return losses;
  };
  auto recorder = std::make_unique<Repeater>(std::vector<at::Tensor>{w});
  const Repeater& counts = *recorder;
  StepGraph graph(std::move(recorder), {w}, Update::several_batches, work);
  for (std::int64_t update = 0; update < 4; ++update) {
    graph.zero_gradients();
    at::Tensor expected = at::zeros({3, 16, 16});
    for (std::int64_t i = 0; i < 2; ++i) {
      const GraphInputs in = inputs_of(2 * update + i);
      graph.run(in);
      expected += in.batch.images.at("image").pixels.to(at::kFloat).sum(0) * in.weight;
    }
    EXPECT_TRUE(at::allclose(w.grad(), expected)) << update;
  }
  EXPECT_EQ(counts.rehearsals, 3);
  EXPECT_EQ(counts.recordings, 1);
  EXPECT_EQ(counts.replays, 5);
}

TEST(StepGraph, BatchOfAnotherShapeHasItsOwnGradientInAnUpdateOfOneBatch) {
  const at::Tensor w = at::ones({1}).requires_grad_();
  StepGraph graph(std::make_unique<Repeater>(std::vector{w}), {w}, Update::one_batch, [&](const GraphInputs& in) {
    Losses losses;
    losses.total = in.batch.labels.sum() * w.sum();
    losses.total.backward();
    return losses;
  });
  for (const std::int64_t rows : {4, 4, 4, 4, 6, 4, 4}) {
    graph.zero_gradients();
    graph.run(inputs_of(rows, rows));
    EXPECT_EQ(w.grad().item<float>(), rows * (rows - 1) / 2);
  }
}

// Returns inputs with 200 captions of up to 8 tokens, which have `tokens` tokens in all.
GraphInputs captions_of(std::int64_t step, std::int64_t tokens) {
  constexpr std::int64_t kRows = 200;
  GraphInputs out = inputs_of(step, kRows);
  at::Tensor lengths = at::full({kRows}, tokens / kRows, at::kLong);
  lengths.narrow(0, 0, tokens % kRows).add_(1);
  TowerInput& view = out.batch.texts.at("caption");
  view.mask = at::arange(8) < lengths.unsqueeze(1);
  view.lengths = lengths;
  return out;
}

// Captions are packed in recorded steps, too. The number of packed tokens is a multiple of 512, and there is a recording for each.
TEST(StepGraph, PacksCaptionsInBuckets) {
  for (const Update update : {Update::one_batch, Update::several_batches}) {
    const Trained plain(at::kCPU, at::kDouble), played(at::kCPU, at::kDouble);
    auto owned = std::make_unique<Repeater>(played.parameters);
    const Repeater& recorder = *owned;
    StepGraph graph(std::move(owned), played.parameters, update, [&](const GraphInputs& in) { return played.work(in); });
    std::int64_t step = 0;
    for (const std::int64_t tokens : {450, 900, 512, 1000, 511, 513, 1300, 260, 1350, 1024, 1600}) {
      const GraphInputs inputs = captions_of(step, tokens);
      for (at::Tensor parameter : plain.parameters) parameter.mutable_grad().reset();
      graph.zero_gradients();
      const double expected = plain.work(inputs).total.item<double>();
      EXPECT_NEAR(graph.run(inputs).total.item<double>(), expected, 1e-9 * (1 + std::abs(expected))) << tokens;
      const auto ours = played.gradients(), theirs = plain.gradients();
      for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-7, 1e-9)) << tokens << " tokens, parameter " << i;
      plain.descend(step);
      played.descend(step++);
    }
    EXPECT_EQ(recorder.recordings, 3) << "512, 1024 and 1536 tokens; 1600 tokens are not padded at all";
    EXPECT_EQ(recorder.replays, 6);
  }
}

TEST(StepGraph, RecordsAFewShapesAndRunsOthersNormally) {
  const at::Tensor w = at::ones({1}).requires_grad_();
  auto owned = std::make_unique<Repeater>(std::vector{w});
  const Repeater& recorder = *owned;
  StepGraph graph(std::move(owned), {w}, Update::several_batches, [&](const GraphInputs& in) {
    Losses losses;
    losses.total = in.batch.labels.sum() * w.sum();
    losses.total.backward();
    return losses;
  });
  for (int round = 0; round < 3; ++round)
    for (std::int64_t rows = 1; rows <= 6; ++rows) EXPECT_EQ(graph.run(inputs_of(rows, rows)).total.item<float>(), rows * (rows - 1) / 2);
  EXPECT_EQ(recorder.recordings, StepGraph::kMostRecordings);
  EXPECT_EQ(recorder.rehearsals, 6 + 2 + 2);
  EXPECT_EQ(recorder.replays, 8);
}

TEST(StepGraph, RunsABatchOfAnotherShapeWithoutTheRecording) {
  const at::Tensor w = at::ones({1}).requires_grad_();
  const auto work = [&](const GraphInputs& in) {
    Losses losses;
    losses.total = in.batch.labels.sum() * w.sum();
    losses.total.backward();
    return losses;
  };
  auto owned = std::make_unique<Repeater>(std::vector<at::Tensor>{w});
  const Repeater& recorder = *owned;
  StepGraph graph(std::move(owned), {w}, Update::several_batches, work);
  for (std::int64_t step = 0; step < 4; ++step) graph.run(inputs_of(step));
  EXPECT_EQ(recorder.replays, 1);
  graph.zero_gradients();
  EXPECT_EQ(graph.run(inputs_of(9, 6)).total.item<float>(), 15);
  EXPECT_EQ(w.grad().item<float>(), 15);
  EXPECT_EQ(graph.run(inputs_of(10)).total.item<float>(), 6);
  EXPECT_EQ(recorder.rehearsals, 4);
  EXPECT_EQ(recorder.recordings, 1);
  EXPECT_EQ(recorder.replays, 2);
}

TEST(StepGraph, ReportsAStepThatCannotBeRecorded) {
  struct Refuser : Repeater {
    using Repeater::Repeater;
    void record(const std::function<void()>&) override {
      TORCH_CHECK(false, "operation not permitted when stream is capturing\nat some place");
    }
  };
  const at::Tensor w = at::ones({1}).requires_grad_();
  StepGraph graph(std::make_unique<Refuser>(std::vector<at::Tensor>{w}), {w}, Update::several_batches, [&](const GraphInputs&) {
    Losses losses;
    losses.total = w.sum();
    return losses;
  });
  for (std::int64_t step = 0; step < 3; ++step) graph.run(inputs_of(step));
  EXPECT_EQ(error_of([&] { graph.run(inputs_of(3)); }),
            "training.cuda_graph: the step cannot be recorded (operation not permitted when stream is capturing): "
            "part of it waits for the device; set training.cuda_graph to false");
}

TEST(StepGraph, HasNoRecorderWithoutAGpu) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(make_cuda_recorder(), UserError);
}

}  // namespace
}  // namespace tessera
