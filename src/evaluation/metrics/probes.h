#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Multinomial logistic regression on fixed features, solved in float64.
struct LogisticRegression {
  at::Tensor weight;     // [C, D] double
  at::Tensor bias;       // [C] double
  double objective = 0;  // mean cross-entropy + (l2 / 2) * |weight|^2
  double log_loss = 0;   // mean cross-entropy
  std::int64_t iterations = 0;
  bool converged = false;
};

/// Minimizes mean cross-entropy + (l2 / 2) * |weight|^2 (no penalty on the bias) by L-BFGS until max |gradient| <= tolerance. `start` is an
/// optional initial solution, such as the solution for a similar l2. features: float [N, D]. labels: int64 [N] in 0..num_classes-1.
LogisticRegression fit_logistic_regression(const at::Tensor& features, const at::Tensor& labels,
                                           std::int64_t num_classes, double l2,
                                           const LogisticRegression* start = nullptr, double tolerance = 1e-7,
                                           std::int64_t max_iterations = 5000);

/// Returns the class with the greatest logit for each row, int64 [M].
at::Tensor predict(const LogisticRegression& model, const at::Tensor& features);

/// The scores of a linear classifier; 0 if there are no samples.
struct ClassifierScores {
  at::Tensor prediction;  // [M] int64; undefined if there are no samples
  double top1 = 0;
  double log_loss = 0;  // mean cross-entropy
};
ClassifierScores measure_classifier(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& features,
                                    const at::Tensor& labels);

struct LinearProbeScores {
  double objective = 0;
  double train_log_loss = 0;
  double test_log_loss = 0;
  double train_top1 = 0;
  double test_top1 = 0;
  at::Tensor test_prediction;  // [M] int64
};

/// Fits a classifier on the training set and scores it on both sets. Features are not normalized. The scores on an empty test set are 0.
LinearProbeScores linear_probe_lbfgs(const at::Tensor& train_features, const at::Tensor& train_labels,
                                     const at::Tensor& test_features, const at::Tensor& test_labels,
                                     std::int64_t num_classes, double l2);

struct AdamwProbe {
  at::Tensor losses;  // [S] double, each batch's loss before its update
  at::Tensor weight;  // [C, D] double
  at::Tensor bias;    // [C] double
  double train_top1 = 0;
};

/// Trains SPARO's probe with AdamW (betas 0.9 and 0.999, epsilon 1e-8; weight decay also applies to the bias). At step s of S, the learning
/// rate is lr * (1 + cos(pi s/S)) / 2. features: [N, D]. labels: [N]. weight [C, D] and bias [C]: the initial values. batches: int64
/// [S, b], the rows of each step.
AdamwProbe linear_probe_adamw(const at::Tensor& features, const at::Tensor& labels, const at::Tensor& weight,
                              const at::Tensor& bias, const at::Tensor& batches, double lr = 0.1,
                              double weight_decay = 0.0);

struct Sweep {
  std::int64_t best_index = 0;
  std::vector<std::int64_t> visited;  // all visited points in order; a point may occur several times
};

/// Searches a grid of `count` points as CLIP does (Radford et al. 2021, A.3). The first round evaluates the points `initial`. Every further
/// round evaluates [best - span, best, best + span] around the previous round's best point (clamped to the grid); then `span` is halved.
/// The round with the span 1 is the last one. The best point of a round is the one with the greatest accuracy; at ties, the first in the
/// list. `accuracy` is called once per point; repetitions use the stored value.
Sweep hyperparameter_sweep(std::int64_t count, const std::vector<std::int64_t>& initial,
                           const std::function<double(std::int64_t)>& accuracy, std::int64_t span = 8);

struct KnnScores {
  at::Tensor neighbors;     // [M, k] int64, indices of training rows, best first
  at::Tensor probabilities;  // [M, C] double
  at::Tensor prediction;     // [M] int64
  at::Tensor in_top5;        // [M] bool, true if the label is among the best min(5, k, C) classes
  double top1 = 0;
  double top5 = 0;  // share of test rows whose label is among the best min(5, k, C) classes
};

/// DINO's k-NN classifier (Caron et al. 2021, 4.1): the k nearest training rows (by cosine) vote for their classes, each with the weight
/// exp(cosine / temperature). A k above N counts as N. At equal cosines, the row with the lower index wins; at equal votes, the class with
/// the lower index. Test rows with the label -1 are left out of the scores.
KnnScores knn_classification(const at::Tensor& train_features, const at::Tensor& train_labels,
                             const at::Tensor& test_features, const at::Tensor& test_labels, std::int64_t num_classes,
                             std::int64_t k = 20, double temperature = 0.07);

}  // namespace tessera::metrics
