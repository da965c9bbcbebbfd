#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

class ValidationLossTask final : public EvaluationTask {
 public:
  explicit ValidationLossTask(ValidationLossSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "loss: the mean of the training objective over batches of held-out data.";
  }

  // Returns false to skip the general check for a text tower. The objective itself checks for all towers that the objective needs.
  bool uses_texts() const override { return false; }

  void check(const EvaluationContext& context) const override {
    if (context.loss == nullptr) return;
    const LossBatches all = batches(context);
    try {
      context.loss->check(all);
    } catch (const UserError& error) {
      throw TaskMisfit(error.what());
    }
  }

  TaskResult run(const Embedder&, const EvaluationContext& context) const override {
    if (context.loss == nullptr)
      user_error("validation_loss: there is no objective: this model file carries no configuration of a run; give a "
                 "checkpoint or run folder of trainer");
    return context.loss->measure(batches(context));
  }

 private:
  LossBatches batches(const EvaluationContext& context) const {
    return {.source = open_samples(settings_.data.source, context.source, "validation_loss.source"),
            .batch_size = settings_.batch_size,
            .max_samples = settings_.data.max_samples,
            .threads = context.threads,
            .reported = context.reported,
            .progress = context.progress};
  }

  ValidationLossSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_validation_loss_task(const ValidationLossSettings& settings) {
  return std::make_shared<ValidationLossTask>(settings);
}

}  // namespace tessera
