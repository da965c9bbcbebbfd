#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/metrics/linear_probe.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Image embeddings of labeled samples.
struct LabeledFeatures {
  at::Tensor features;  // [N, D]
  at::Tensor labels;    // [N] int64
};

/// The part of `train` that a sweep measures on, and the rest: drawn once and for all. Throws UserError if either is empty.
struct HeldOut {
  LabeledFeatures validation;
  LabeledFeatures rest;
};
HeldOut hold_out(const LabeledFeatures& train, const LinearProbeSettings& settings);

/// A classifier that AdamW has fitted, with the learning rate and weight decay that were best on the held-out part of train.
struct AdamwChoice {
  metrics::AdamwProbe probe;
  double lr = 0;
  double weight_decay = 0;
  std::optional<double> validation_top1;  // none: there was nothing to choose
};

/// Tries each learning rate with each weight decay on a part of `train`; the best pair, the first of equals, is fitted on all of
/// it. The same data and settings give the same classifier.
AdamwChoice fit_with_adamw(const LabeledFeatures& train, std::int64_t classes, const LinearProbeSettings& settings);

}  // namespace tessera
