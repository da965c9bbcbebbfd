#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/negative_pairs.h"

namespace tessera {
namespace {

struct HardNegativeSettings {
  TaskData data;
  SimilaritySettings compared;
};

template <class Visitor>
void fields(Visitor& v, HardNegativeSettings& s) {
  data_fields(v, s.data);
  similarity_field(v, s.compared);
}

/// Compares right captions with hard negatives of the same image, as in SugarCrepe. Needs a source with `negatives`.
class HardNegativesTask final : public DataTask<HardNegativeSettings> {
 public:
  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "hard_negatives.similarity", settings_.compared.similarity);
    DataTask::check(context);
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    return measure_by_similarity("hard_negatives", settings_.compared, embedder, context,
                                 [&](const Embedder& model) { return measure(model, context); });
  }

 private:
  Required required() const override { return with_negatives(); }
  Joined joined() const override { return Joined::none; }

  TaskResult measure(const Embedder& embedder, const EvaluationContext& context) const {
    TaskResult result;
    std::vector<at::Tensor> right;   // bool, one tensor per batch
    std::vector<std::string> kinds;  // kind of each pair
    const auto add = [&](const NegativePairs& pairs, const TowerFeatures& images, const TowerFeatures& texts) {
      kinds.insert(kinds.end(), pairs.kinds.begin(), pairs.kinds.end());
      const at::Tensor rows = embedder.similarity(images, texts).index_select(0, at::tensor(pairs.image, at::kLong));  // [pairs, texts]
      const at::Tensor columns = at::stack({at::tensor(pairs.positive, at::kLong), at::tensor(pairs.negative, at::kLong)}, 1);
      right.push_back(metrics::first_is_best(rows.gather(1, columns)));
    };
    const at::Tensor images = run_over_pairs(pass_over_data(embedder, context), result, add);
    const ItemKinds by_kind(kinds);
    const at::Tensor shares = add_by_kind("accuracy", at::cat(right), images, by_kind, result);
    if (context.images) add_bars("Accuracy by kind", by_kind.names, shares, result);
    return result;
  }
};

}  // namespace

void add_hard_negatives(TaskRegistry& list) {
  add_task<HardNegativesTask>(
      list, "hard_negatives", "right captions against wrong ones of the same image (SugarCrepe)",
      "accuracy: the share of pairs in which the image is nearer to its right caption than to the wrong one. mean_category_accuracy: "
      "the mean over the kinds of wrong captions. A kind names the change to the right caption, with SugarCrepe's terms: add, "
      "something is added; replace, one thing is replaced by another; swap, two are exchanged; att, an attribute (a color); obj, an "
      "object; rel, a relation (left of).");
}

}  // namespace tessera
