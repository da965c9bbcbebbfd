#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

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
