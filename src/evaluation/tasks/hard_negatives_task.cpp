#include <set>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/encode.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/evaluation/metrics/pairs.h>

namespace tessera {
namespace {

class HardNegativesTask final : public EvaluationTask {
 public:
  explicit HardNegativesTask(HardNegativeSettings settings) : settings_(std::move(settings)) {}

  TaskResult run(DualEncoder& model, const Tokenizer& tokenizer, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "hard_negatives.source");
    TaskResult result;
    std::vector<at::Tensor> rows;
    std::vector<std::string> right, wrong, kinds;
    std::vector<std::int64_t> image;  // of each pair
    std::int64_t seen = 0;
    encode_source(model, source, context, settings_.data.max_samples, false, result,
                  [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
                    for (const EvaluationSample& sample : samples) {
                      if (sample.sample.captions.empty() || sample.sample.negatives.empty())
                        ++result.skipped["no_negatives"];
                      for (const HardNegative& negative : sample.sample.negatives) {
                        if (sample.sample.captions.empty()) break;
                        right.push_back(sample.sample.captions.front());
                        wrong.push_back(negative.caption);
                        kinds.push_back(negative.kind);
                        image.push_back(seen);
                      }
                      ++seen;
                    }
                    rows.push_back(features.global.to(at::kCPU, at::kFloat));
                  });
    if (image.empty()) user_error("hard_negatives: no sample of ", source->describe(), " has hard negatives");
    const std::set<std::string> sorted(kinds.begin(), kinds.end());
    const std::vector<std::string> names(sorted.begin(), sorted.end());
    std::vector<std::int64_t> category;
    for (const std::string& kind : kinds)
      category.push_back(std::distance(names.begin(), std::find(names.begin(), names.end(), kind)));

    const at::Tensor own = metrics::unit_rows(at::cat(rows).index_select(0, at::tensor(image, at::kLong)));
    const auto cosines = [&](const std::vector<std::string>& texts) {
      return (metrics::unit_rows(encode_texts(model, tokenizer, texts, context)) * own).sum(1);
    };
    const auto scores = metrics::pairwise_accuracy(cosines(right), cosines(wrong), at::tensor(category, at::kLong),
                                                   static_cast<std::int64_t>(names.size()));
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
