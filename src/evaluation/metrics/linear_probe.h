#pragma once

#include <cstdint>

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

}  // namespace tessera::metrics
