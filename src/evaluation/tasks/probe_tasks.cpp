// The tasks linear_probe and knn, which classify test images with the features and labels of a training set.
#include <algorithm>
#include <cmath>
#include <map>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/probe_fit.h"

namespace tessera {
namespace {

struct KnnSettings : TrainTestData {
  std::int64_t k = 20;
  double temperature = 0.07;
};

template <class Visitor>
void fields(Visitor& v, KnnSettings& s) {
  train_test_fields(v, s, "data set whose samples vote; null: the run's training data");
  v("k", s.k, "number of neighbors that vote", config::at_least(1));
  v("temperature", s.temperature, "temperature of the votes: a neighbor's vote has the weight exp(cosine / temperature)",
    config::above(0));
}

LabeledFeatures embed_labeled(Pass pass, const std::function<std::int64_t(const Sample&)>& label_of, TaskResult& result) {
  std::vector<at::Tensor> features;
  std::vector<std::int64_t> labels;
  pass.reads_pixels = false;
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

/// The base of tasks that classify embeddings.
template <class S>
class ClassifierTask : public TrainTestTask<S> {
 public:
 protected:
  Required required() const override { return labeled(); }

  /// Embeds both data sets. `result` counts only the test samples.
  TrainAndTest embed_both(const Embedder& embedder, const EvaluationContext& context, TaskResult& result) const {
    const Pass train = this->train_pass(embedder, context), test = this->test_pass(embedder, context);
    TaskResult uncounted;
    TrainAndTest out;
    out.train = embed_labeled(train, labels_of_train(*train.source, *train.source, uncounted), uncounted);
    out.test = embed_labeled(test, labels_of_train(*train.source, *test.source, result), result);
    result.data = concat(test.source->describe(), " (fitted on ", with_thousands(out.train.labels.size(0)), " of ",
                         train.source->describe(), ")");
    out.classes = std::max(out.train.labels.max().item<std::int64_t>(), out.test.labels.max().item<std::int64_t>()) + 1;
    result.chance["top1"] = 1 / static_cast<double>(out.classes);
    return out;
  }
};

class LinearProbeTask final : public ClassifierTask<LinearProbeSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    TaskResult result;
    TrainAndTest data = embed_both(embedder, context, result);
    if (settings_.normalize) {
      data.train.features = metrics::unit_rows(data.train.features);
      data.test.features = metrics::unit_rows(data.test.features);
    }
    if (settings_.solver == "adamw")
      measure_adamw(data, result);
    else
      measure_lbfgs(data, result);
    const auto l2 = std::ranges::find(result.metrics, std::string("l2"), &std::pair<std::string, double>::first);
    for (const std::int64_t shots : settings_.shots) measure_shots(data, shots, l2->second, result);
    return result;
  }

 private:
  void measure_lbfgs(const TrainAndTest& data, TaskResult& result) const {
    double l2 = settings_.l2.value_or(0);
    double held_out = -1;
    if (!settings_.l2) std::tie(l2, held_out) = sweep(hold_out(data.train, settings_), data.classes);
    const auto scores = metrics::linear_probe_lbfgs(data.train.features, data.train.labels, data.test.features,
                                                    data.test.labels, data.classes, l2);
    add_scores(scores.test_prediction.eq(data.test.labels), scores.test_top1, scores.train_top1, scores.test_log_loss, result);
    result.add_number("l2", l2);
    if (held_out >= 0) result.add_share("validation_top1", held_out);
  }

  /// Adds the mean accuracy of classifiers that are fitted on so many images of each class, and its standard deviation over the draws.
  /// `whole_l2` is the penalty of the classifier of all images, for draws that leave no images to choose another on.
  void measure_shots(const TrainAndTest& data, std::int64_t shots, double whole_l2, TaskResult& result) const {
    std::vector<at::Tensor> right;  // [images] of each draw
    for (std::int64_t seed = 0; seed < settings_.shot_seeds; ++seed) {
      const HeldOut drawn = draw_shots(data.train, shots, seed);
      const bool can_choose = !settings_.l2 && drawn.validation.labels.numel() > 0;
      const double l2 = can_choose ? sweep(drawn, data.classes).first : whole_l2;
      if (!can_choose && !settings_.l2 && seed == 0)
        result.notes.push_back(concat("shots_", shots, ": no class has more than ", shots, " training images, so l2 is that of all images"));
      const auto fit = metrics::fit_logistic_regression(drawn.rest.features, drawn.rest.labels, data.classes, l2);
      right.push_back(metrics::predict(fit, data.test.features).eq(data.test.labels).to(at::kDouble));
    }
    const at::Tensor all = at::stack(right), shares = all.mean(1);
    const std::string name = concat("shots_", shots, "_top1");
    add_share(name, all.mean().item<double>(), {.part = all.mean(0)}, result);
    result.chance[name] = 1 / static_cast<double>(data.classes);
    if (settings_.shot_seeds > 1)
      result.add_share(concat("shots_", shots, "_deviation"), shares.std(/*unbiased=*/true).item<double>(), MetricRule::Better::neither);
  }

  void measure_adamw(const TrainAndTest& data, TaskResult& result) const {
    const AdamwChoice choice = fit_with_adamw(data.train, data.classes, settings_);
    const auto scores = metrics::measure_classifier(choice.probe.weight, choice.probe.bias, data.test.features, data.test.labels);
    add_scores(scores.prediction.eq(data.test.labels), scores.top1, choice.probe.train_top1, scores.log_loss, result);
    result.add_number("lr", choice.lr);
    result.add_number("weight_decay", choice.weight_decay);
    if (choice.validation_top1) result.add_share("validation_top1", *choice.validation_top1);
  }

  static void add_scores(const at::Tensor& right, double top1, double train_top1, double log_loss, TaskResult& result) {
    add_share("top1", top1, {.part = right}, result);
    result.add_share("train_top1", train_top1, MetricRule::Better::neither);
    result.add_number("log_loss", log_loss, MetricRule::Better::lower);
  }

  /// Returns the l2 with the best accuracy on the validation part, and that accuracy.
  static std::pair<double, double> sweep(const HeldOut& parts, std::int64_t classes) {
    constexpr std::int64_t kPoints = 97;
    const auto l2_at = [](std::int64_t index) {
      return std::pow(10.0, -6.0 + 8.0 * static_cast<double>(index) / (kPoints - 1));
    };
    const auto& [validation, rest] = parts;

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
};

class KnnTask final : public ClassifierTask<KnnSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    TaskResult result;
    const TrainAndTest data = embed_both(embedder, context, result);
    const auto scores = metrics::knn_classification(data.train.features, data.train.labels, data.test.features,
                                                    data.test.labels, data.classes, settings_.k, settings_.temperature);
    add_share("top1", scores.top1, {.part = scores.prediction.eq(data.test.labels)}, result);
    add_share("top5", scores.top5, {.part = scores.in_top5}, result);
    result.chance["top5"] = std::min(1.0, 5 / static_cast<double>(data.classes));
    return result;
  }
};

}  // namespace

void add_linear_probe(TaskRegistry& list) {
  add_task<LinearProbeTask>(
      list, "linear_probe", "logistic regression on image embeddings (CLIP)",
      "top1: the share of images that a logistic regression on embeddings, fitted on the training data, classifies correctly. "
      "log_loss: its mean cross-entropy on them. l2: its regularization. lr, weight_decay: those of AdamW, if AdamW fitted it. "
      "shots_K_top1: the same for classifiers fitted on K training images of each class, averaged over the draws of these images.");
}

void add_knn(TaskRegistry& list) {
  add_task<KnnTask>(
      list, "knn", "classification by nearest neighbors among image embeddings (DINO)",
      "top k: the share of images whose class is among the k best of a weighted vote of the nearest training images (cosine).");
}

}  // namespace tessera
