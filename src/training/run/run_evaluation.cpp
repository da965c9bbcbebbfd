#include <tessera/training/run/run_evaluation.h>
#include <tessera/training/run/run_loss.h>

namespace tessera {

EvaluationContext evaluation_context(const TrainingRun& run, const Config& config, std::int64_t step) {
  EvaluationContext context;
  context.source = run.validation;
  context.train_source = run.train;
  context.loss = run_loss(run, config, step);
  context.batch_size = config.evaluation.batch_size;
  context.threads = config.evaluation.threads;
  context.vocabulary_texts = std::make_shared<std::map<std::uint64_t, TowerFeatures>>();
  return context;
}

void check_evaluation(const TrainingRun& run, const Config& config, std::vector<std::string>* unreadable) {
  const DualEncoderEmbedder embedder(run.model, run.tokenizer);
  const EvaluationContext context = evaluation_context(run, config);
  for (std::size_t i = 0; i < config.evaluation.tasks.size(); ++i) {
    const std::string place = task_place(config.evaluation.tasks, i, "evaluation.tasks") + ": ";
    try {
      check_task(config.evaluation.tasks[i], embedder, context);
    } catch (const TaskMisfit& error) {
      throw TaskMisfit(place + error.what());
    } catch (const UserError& error) {
      if (unreadable == nullptr) throw UserError(place + error.what());
      unreadable->push_back(place + error.what());
    }
  }
}

}  // namespace tessera
