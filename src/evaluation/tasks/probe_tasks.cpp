// The tasks linear_probe and knn, which classify test images with the features and labels of a training set.
#include <cmath>
#include <map>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/probe_fit.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

LabeledFeatures embed_labeled(const Embedder& embedder, const EvaluationContext& context, const std::shared_ptr<const Source>& source,
                              std::int64_t max_samples, const std::function<std::int64_t(const Sample&)>& label_of, TaskResult& result) {
  std::vector<at::Tensor> features;
  std::vector<std::int64_t> labels;
  const Pass pass{.embedder = embedder,
                  .context = context,
                  .source = source,
                  .max_samples = max_samples,
                  .required = labeled(),
                  .reads_pixels = false};
  pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& batch) {
    features.push_back(batch.global);
    for (const EvaluationSample& sample : samples) labels.push_back(label_of(sample.sample));
  });
  return {at::cat(features), at::tensor(labels, at::kLong)};
}

struct TrainAndTest {
  LabeledFeatures train;
  LabeledFeatures test;
  std::int64_t classes = 0;
};

/// Embeds both data sets. `result` counts only the test samples.
TrainAndTest embed_both(const std::string& task, const TrainTestData& settings, const Embedder& embedder,
                        const EvaluationContext& context, TaskResult& result) {
  const auto train = open_samples(settings.train, context.train_source, task + ".train");
  const auto test = open_samples(settings.source, context.source, task + ".source");
  TaskResult uncounted;
  TrainAndTest out;
  out.train = embed_labeled(embedder, context, train, settings.max_train_samples,
                            labels_of_train(*train, *train, uncounted), uncounted);
  out.test =
      embed_labeled(embedder, context, test, settings.max_samples, labels_of_train(*train, *test, result), result);
  result.data = concat(test->describe(), " (fitted on ", with_thousands(out.train.labels.size(0)), " of ",
                       train->describe(), ")");
  out.classes = std::max(out.train.labels.max().item<std::int64_t>(), out.test.labels.max().item<std::int64_t>()) + 1;
  result.chance["top1"] = 1 / static_cast<double>(out.classes);
  return out;
}

class LinearProbeTask final : public EvaluationTask {
 public:
  explicit LinearProbeTask(LinearProbeSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "top1: the share of images that a logistic regression on embeddings, fitted on the training data, classifies correctly. "
           "log_loss: its mean cross-entropy on them. l2: its regularization. lr, weight_decay: those of AdamW, if AdamW fitted it.";
  }

  bool uses_texts() const override { return false; }

  void check(const EvaluationContext& context) const override {
    check_train_and_test("linear_probe", settings_, context, labeled());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    TaskResult result;
    TrainAndTest data = embed_both("linear_probe", settings_, embedder, context, result);
    if (settings_.normalize) {
      data.train.features = metrics::unit_rows(data.train.features);
      data.test.features = metrics::unit_rows(data.test.features);
    }
    if (settings_.solver == "adamw")
      measure_adamw(data, result);
    else
      measure_lbfgs(data, result);
    return result;
  }

 private:
  void measure_lbfgs(const TrainAndTest& data, TaskResult& result) const {
    double l2 = settings_.l2.value_or(0);
    double held_out = -1;
    if (!settings_.l2) std::tie(l2, held_out) = sweep(data.train, data.classes);
    const auto scores = metrics::linear_probe_lbfgs(data.train.features, data.train.labels, data.test.features,
                                                    data.test.labels, data.classes, l2);
    result.add_share("top1", scores.test_top1);
    result.add_share("train_top1", scores.train_top1, MetricRule::Better::neither);
    result.add_number("log_loss", scores.test_log_loss, MetricRule::Better::lower);
    result.add_number("l2", l2);
    result.outcomes = {make_outcomes("top1", {.part = scores.test_prediction.eq(data.test.labels)})};
    if (held_out >= 0) result.add_share("validation_top1", held_out);
  }

  void measure_adamw(const TrainAndTest& data, TaskResult& result) const {
    const AdamwChoice choice = fit_with_adamw(data.train, data.classes, settings_);
    const auto scores =
        metrics::measure_classifier(choice.probe.weight, choice.probe.bias, data.test.features, data.test.labels);
    result.add_share("top1", scores.top1);
    result.add_share("train_top1", choice.probe.train_top1, MetricRule::Better::neither);
    result.add_number("log_loss", scores.log_loss, MetricRule::Better::lower);
    result.add_number("lr", choice.lr);
    result.add_number("weight_decay", choice.weight_decay);
    result.outcomes = {make_outcomes("top1", {.part = scores.prediction.eq(data.test.labels)})};
    if (choice.validation_top1) result.add_share("validation_top1", *choice.validation_top1);
  }

  /// Returns the l2 with the best accuracy on the held-out part of `train`, and that accuracy.
  std::pair<double, double> sweep(const LabeledFeatures& train, std::int64_t classes) const {
    constexpr std::int64_t kPoints = 97;
    const auto l2_at = [](std::int64_t index) {
      return std::pow(10.0, -6.0 + 8.0 * static_cast<double>(index) / (kPoints - 1));
    };
    const auto [validation, rest] = hold_out(train, settings_);

    // Each fit starts from the solution for the nearest l2. A loose tolerance is enough, because only accuracies are compared.
    std::map<std::int64_t, metrics::LogisticRegression> fits;
    std::map<std::int64_t, double> accuracy;
    const auto measure = [&, &rest = rest, &validation = validation](std::int64_t index) {
      const metrics::LogisticRegression* start = nullptr;
      std::int64_t nearest = kPoints;
      for (const auto& [other, fit] : fits) {
        if (std::abs(other - index) >= nearest) continue;
        nearest = std::abs(other - index);
        start = &fit;
      }
      const auto& fit = fits.emplace(index, metrics::fit_logistic_regression(rest.features, rest.labels, classes,
                                                                             l2_at(index), start, 1e-5, 1000))
                            .first->second;
      return accuracy[index] = metrics::share_equal(metrics::predict(fit, validation.features), validation.labels);
    };
    const auto found = metrics::hyperparameter_sweep(kPoints, {0, 16, 32, 48, 64, 80, 96}, measure);
    return {l2_at(found.best_index), accuracy[found.best_index]};
  }

  LinearProbeSettings settings_;
};

class KnnTask final : public EvaluationTask {
 public:
  explicit KnnTask(KnnSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "top k: the share of images whose class is among the k best of a weighted vote of the nearest training images (cosine).";
  }

  bool uses_texts() const override { return false; }

  void check(const EvaluationContext& context) const override {
    check_train_and_test("knn", settings_, context, labeled());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    TaskResult result;
    const TrainAndTest data = embed_both("knn", settings_, embedder, context, result);
    const auto scores = metrics::knn_classification(data.train.features, data.train.labels, data.test.features,
                                                    data.test.labels, data.classes, settings_.k, settings_.temperature);
    result.add_share("top1", scores.top1);
    result.add_share("top5", scores.top5);
    result.chance["top5"] = std::min(1.0, 5 / static_cast<double>(data.classes));
    result.outcomes = {make_outcomes("top1", {.part = scores.prediction.eq(data.test.labels)}),
                       make_outcomes("top5", {.part = scores.in_top5})};
    return result;
  }

 private:
  KnnSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_linear_probe_task(const LinearProbeSettings& settings) {
  return std::make_shared<LinearProbeTask>(settings);
}

std::shared_ptr<EvaluationTask> make_knn_task(const KnnSettings& settings) {
  return std::make_shared<KnnTask>(settings);
}

}  // namespace tessera
