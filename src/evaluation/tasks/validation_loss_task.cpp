#include "src/evaluation/rank_embedder.h"
#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct ValidationLossSettings {
  TaskData data;
  std::optional<std::int64_t> batch_size;
};

template <class Visitor>
void fields(Visitor& v, ValidationLossSettings& s) {
  data_fields(v, s.data);
  v("batch_size", s.batch_size,
    "number of samples in a batch, which are each other's negatives; null: data.loader.batch_size. An incomplete last batch is not "
    "measured",
    config::at_least(1));
}

/// Measures the training loss on held-out data.
class ValidationLossTask final : public DataTask<ValidationLossSettings> {
 public:
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
    const LossBatches all = batches(context);
    const RankEmbedder* const ranks = context.ranks;
    if (ranks != nullptr && ranks->shares_loss()) return ranks->measure_loss(*context.loss, order_of(joined()), all);
    return context.loss->measure(all);
  }

 private:
  Joined joined() const override { return Joined::none; }

  LossBatches batches(const EvaluationContext& context) const {
    return {.source = source_in(context),
            .batch_size = settings_.batch_size,
            .max_samples = settings_.data.max_samples,
            .threads = context.threads,
            .reported = context.reported,
            .progress = context.progress};
  }
};

}  // namespace

void add_validation_loss(TaskRegistry& list) {
  add_task<ValidationLossTask>(
      list, "validation_loss", "the loss of the run's objective on the validation data",
      "loss: the mean of the training objective over batches of held-out data.");
}

}  // namespace tessera
