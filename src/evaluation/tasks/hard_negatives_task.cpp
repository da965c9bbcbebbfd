#include <set>

#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/negative_pairs.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/report/cards.h"

namespace tessera {
namespace {

class HardNegativesTask final : public EvaluationTask {
 public:
  explicit HardNegativesTask(HardNegativeSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "accuracy: the share of pairs in which the image is nearer to its right caption than to the wrong one. mean_category_accuracy: "
           "the mean over the kinds of wrong captions. A kind names the change to the right caption, with SugarCrepe's terms: add, "
           "something is added; replace, one thing is replaced by another; swap, two are exchanged; att, an attribute (a color); obj, an "
           "object; rel, a relation (left of).";
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "hard_negatives.similarity", settings_.similarity, "global");
    const auto source = open_samples(settings_.data.source, context.source, "hard_negatives.source");
    check_samples(*source, "source", settings_.data.max_samples, with_negatives());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (settings_.similarity == "global") return measure(embedder, context);
    TaskResult result =
        measure(conditioned(embedder, context, "hard_negatives.similarity", settings_.similarity, "global"), context);
    result.data += " (conditioned)";
    return result;
  }

 private:
  TaskResult measure(const Embedder& embedder, const EvaluationContext& context) const {
    const auto source = open_samples(settings_.data.source, context.source, "hard_negatives.source");
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = with_negatives()};
    TaskResult result;
    std::vector<at::Tensor> right, wrong;  // similarities, one tensor per batch
    std::vector<std::string> kinds;        // kind of each pair
    std::vector<std::int64_t> sample;      // image of each pair
    ImageNumbers images(*source);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const NegativePairs pairs(samples);
      for (const std::int64_t row : pairs.image) sample.push_back(images.of(samples[static_cast<std::size_t>(row)]));
      result.texts += std::ssize(pairs.texts);
      kinds.insert(kinds.end(), pairs.kinds.begin(), pairs.kinds.end());
      const at::Tensor similarity = embedder.similarity(features, embed_texts(embedder, pairs.texts));
      const at::Tensor rows = similarity.index_select(0, at::tensor(pairs.image, at::kLong));  // [pairs, texts]
      const auto column = [&](const std::vector<std::int64_t>& columns) {
        return rows.gather(1, at::tensor(columns, at::kLong).unsqueeze(1)).squeeze(1);
      };
      right.push_back(column(pairs.positive));
      wrong.push_back(column(pairs.negative));
    });
    result.samples = images.count();

    const std::set<std::string> sorted(kinds.begin(), kinds.end());
    const std::vector<std::string> names(sorted.begin(), sorted.end());
    std::vector<std::int64_t> category;
    for (const std::string& kind : kinds) category.push_back(std::distance(sorted.begin(), sorted.find(kind)));
    const auto scores =
        metrics::pairwise_accuracy(at::cat(right), at::cat(wrong), at::tensor(category, at::kLong), std::ssize(names));
    result.add_share("accuracy", scores.accuracy);
    result.add_share("mean_category_accuracy", scores.mean_category_accuracy);
    const at::Tensor samples = at::tensor(sample, at::kLong), kind = at::tensor(category, at::kLong);
    result.outcomes = {
        make_outcomes("accuracy", {.part = scores.right, .sample = samples}),
        make_outcomes("mean_category_accuracy", {.part = scores.right, .sample = samples, .group = kind})};
    std::vector<std::pair<std::string, double>> shown;
    for (std::size_t k = 0; k < names.size(); ++k) {
      const double accuracy = scores.category_accuracy[static_cast<std::int64_t>(k)].item<double>();
      result.add_share(names[k] + "_accuracy", accuracy);
      const at::Tensor own = kind.eq(static_cast<std::int64_t>(k));
      result.outcomes.push_back(make_outcomes(
          names[k] + "_accuracy", {.part = scores.right.masked_select(own), .sample = samples.masked_select(own)}));
      shown.emplace_back(names[k], accuracy);
    }
    if (context.images && !shown.empty()) result.add_card(report::bars_card("Accuracy by kind", shown));
    return result;
  }

  HardNegativeSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_hard_negatives_task(const HardNegativeSettings& settings) {
  return std::make_shared<HardNegativesTask>(settings);
}

}  // namespace tessera
