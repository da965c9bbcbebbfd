#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

struct LinearProbeSettings : TrainTestData {
  std::optional<double> l2;
  double validation_share = 0.2;
  bool normalize = false;
  std::string solver = "lbfgs";
  std::vector<double> learning_rates = {0.001, 0.01, 0.1};
  std::vector<double> weight_decays = {0.0, 0.0001, 0.01};
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  std::vector<std::int64_t> shots;
  std::int64_t shot_seeds = 3;
};

template <class Visitor>
void fields(Visitor& v, LinearProbeSettings& s) {
  train_test_fields(v, s, "data set to fit the classifier on; null: the run's training data");
  v("l2", s.l2,
    "weight of the L2 penalty; null: the best of 97 values from 1e-6 to 100 on a held-out part of train (CLIP, A.3)",
    config::at_least(0));
  v("validation_share", s.validation_share, "share of train that is held out to choose l2, or the learning rate and weight decay",
    config::in_half_open(0, 1));
  v("normalize", s.normalize, "scale features to length 1 before the fit (CLIP does not)");
  v("solver", s.solver,
    "how the classifier is fitted; lbfgs: to the minimum, with an L2 penalty (CLIP); adamw: for some epochs from zero, with a "
    "half-cosine learning rate (SPARO, CLIP_benchmark)",
    config::one_of({"lbfgs", "adamw"}));
  v("learning_rates", s.learning_rates,
    "with solver: adamw, learning rates to try; each is combined with each of weight_decays and measured on the held-out part of "
    "train. With a single combination nothing is held out",
    config::above(0));
  v("weight_decays", s.weight_decays, "with solver: adamw, weight decays to try", config::at_least(0));
  v("epochs", s.epochs, "with solver: adamw, number of passes over train", config::at_least(1));
  v("batch_size", s.batch_size, "with solver: adamw, number of samples per update", config::at_least(1));
  v("shots", s.shots,
    "also fit on so many training images of each class, for each of these numbers (few-shot classification, [1, 5, 10, "
    "20]). Without l2, its "
    "value is the best on min(shots, 4) other images of each class (CoOp, Zhou et al. 2022)",
    config::at_least(1));
  v("shot_seeds", s.shot_seeds, "number of random draws of these images, whose accuracies are averaged", config::at_least(1));
}
std::optional<config::Problem> validate(const LinearProbeSettings& settings);

/// Image embeddings of labeled samples.
struct LabeledFeatures {
  at::Tensor features;  // [N, D]
  at::Tensor labels;    // [N] int64
};

/// A fixed random split of training data into a part on which settings are compared (validation) and the rest. hold_out()
/// throws UserError if either part is empty.
struct HeldOut {
  LabeledFeatures validation;
  LabeledFeatures rest;
};
HeldOut hold_out(const LabeledFeatures& train, const LinearProbeSettings& settings);

/// Draws `shots` samples of each class as the rest, and min(shots, 4) other samples of each class for validation; fewer of classes that
/// have fewer. A draw of fewer shots is a part of a draw of more shots with the same seed.
HeldOut draw_shots(const LabeledFeatures& train, std::int64_t shots, std::int64_t seed);

/// A classifier fitted by AdamW, with the learning rate and weight decay that were best on a held-out part of the training data.
struct AdamwChoice {
  metrics::AdamwProbe probe;
  double lr = 0;
  double weight_decay = 0;
  std::optional<double> validation_top1;  // nullopt if there was only one pair of learning rate and weight decay
};

/// Tries each learning rate with each weight decay on a part of `train`. Then fits the classifier on all of `train` with the
/// best pair (the first one, if pairs tie). The result is deterministic.
AdamwChoice fit_with_adamw(const LabeledFeatures& train, std::int64_t classes, const LinearProbeSettings& settings);

}  // namespace tessera
