#include <set>

#include <ATen/ATen.h>

#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/evaluation/metrics/pairs.h>

namespace tessera {
namespace {

class HardNegativesTask final : public EvaluationTask {
 public:
  explicit HardNegativesTask(HardNegativeSettings settings) : settings_(std::move(settings)) {}

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "hard_negatives.source");
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = {[](const EvaluationSample& sample) {
                                   return !sample.sample.captions.empty() && !sample.sample.negatives.empty();
                                 },
                                 "no_negatives", "hard negatives"}};
    TaskResult result;
    std::vector<at::Tensor> right, wrong;  // similarities, by batch
    std::vector<std::string> kinds;        // of each pair
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      std::vector<std::string> texts;
      std::vector<std::int64_t> image, positive, negative;  // of each pair: rows and columns
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const std::int64_t own = std::ssize(texts);
        texts.push_back(samples[i].sample.captions.front());
        for (const HardNegative& wrong_one : samples[i].sample.negatives) {
          image.push_back(static_cast<std::int64_t>(i));
          positive.push_back(own);
          negative.push_back(std::ssize(texts));
          texts.push_back(wrong_one.caption);
          kinds.push_back(wrong_one.kind);
        }
      }
      const at::Tensor similarity = embedder.similarity(features, embed_texts(embedder, texts));
      const at::Tensor rows = similarity.index_select(0, at::tensor(image, at::kLong));  // [pairs, texts]
      const auto column = [&](const std::vector<std::int64_t>& columns) {
        return rows.gather(1, at::tensor(columns, at::kLong).unsqueeze(1)).squeeze(1);
      };
      right.push_back(column(positive));
      wrong.push_back(column(negative));
    });

    const std::set<std::string> sorted(kinds.begin(), kinds.end());
    const std::vector<std::string> names(sorted.begin(), sorted.end());
    std::vector<std::int64_t> category;
    for (const std::string& kind : kinds) category.push_back(std::distance(sorted.begin(), sorted.find(kind)));
    const auto scores =
        metrics::pairwise_accuracy(at::cat(right), at::cat(wrong), at::tensor(category, at::kLong), std::ssize(names));
    result.metrics = {{"accuracy", scores.accuracy}, {"mean_category_accuracy", scores.mean_category_accuracy}};
    for (std::size_t k = 0; k < names.size(); ++k) {
      const double accuracy = scores.category_accuracy[static_cast<std::int64_t>(k)].item<double>();
      result.metrics.emplace_back(names[k] + "_accuracy", accuracy);
      if (context.pictures) result.pictures.class_values.emplace_back(names[k], accuracy);
    }
    return result;
  }

 private:
  HardNegativeSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_hard_negatives_task(const HardNegativeSettings& settings) {
  return std::make_shared<HardNegativesTask>(settings);
}

}  // namespace tessera
