// How a run measures its model.
#include <filesystem>

#include <nlohmann/json.hpp>

#include <tessera/distributed/agreement.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/interrupt.h>
#include <tessera/training/run/run_loss.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

// The averaged weights stand in the model while this lives.
class MeasuredWeights {
 public:
  explicit MeasuredWeights(Ema* average) : average_(average) {
    if (average_ != nullptr) average_->swap();
  }
  ~MeasuredWeights() {
    if (average_ != nullptr) average_->swap();
  }
  MeasuredWeights(const MeasuredWeights&) = delete;
  MeasuredWeights& operator=(const MeasuredWeights&) = delete;

 private:
  Ema* average_;
};

}  // namespace

EvaluationContext Trainer::evaluation_context() const {
  EvaluationContext context;
  context.source = run_.validation;
  context.train_source = run_.train;
  context.loss = run_loss(run_, config_, state_.step);
  context.batch_size = config_.evaluation.batch_size;
  context.threads = config_.evaluation.threads;
  context.vocabulary_texts = std::make_shared<std::map<std::uint64_t, TowerFeatures>>();
  return context;
}

void Trainer::evaluate() {
  if (config_.evaluation.tasks.empty() || last_evaluated_ == state_.step) return;
  last_evaluated_ = state_.step;
  heartbeat_.enter("the evaluation", state_.step);
  bool best = false;
  monitor_.leave_out([&] { best = run_on_rank0(group_, "evaluation", [&] { return run_evaluation(); }); });
  if (!best) return;
  heartbeat_.enter("saving", state_.step);
  monitor_.leave_out([&] { checkpoints_.save_best(state_); });
}

bool Trainer::run_evaluation() {
  monitor_.log().clear();
  const std::string& weights = config_.evaluation.weights;
  const MeasuredWeights measured(weights == "ema" ? &*run_.ema : nullptr);
  const DualEncoderEmbedder embedder(weights == "teacher" ? run_.teacher->model : run_.model, run_.tokenizer);
  const EvaluationContext context = evaluation_context();
  auto results = nlohmann::json::array();
  MeasuredMetrics all;
  for (const config::ModuleSettings& task : config_.evaluation.tasks) {
    const TaskResult result = run_task(task, embedder, context);
    monitor_.log().line(concat("step ", state_.step, ": ", summary_line(result)));
    std::vector<std::pair<std::string, double>> metrics;
    for (const auto& [name, value] : result.metrics) metrics.emplace_back(concat(result.task, ".", name), value);
    monitor_.evaluated(state_, metrics);
    all.insert(all.end(), metrics.begin(), metrics.end());
    monitor_.log().readings(state_.step, result.readings);
    results.push_back(to_json(result));
    if (interrupted() != 0) return false;
  }
  std::filesystem::create_directories(folder_ + "/evaluation");
  io::write_file(folder_ + "/evaluation/" + step_folder_name(state_.step) + ".json",
                 nlohmann::json{{"step", state_.step}, {"results", results}}.dump(2) + "\n");
  monitor_.show(state_);
  // The weights before the first step are those that the run was given.
  return state_.step > 0 && checkpoints_.is_best(all);
}

}  // namespace tessera
