#pragma once

#include <optional>
#include <string>

#include <tessera/measure/memory_trace.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// What the towers need for a number of samples, measured with two small numbers of them.
class TowerCosts {
 public:
  /// A forward and a backward pass.
  struct Pass {
    CostCurve forward{1};   // from nothing to the features and what the backward pass needs
    CostCurve dropped{1};   // the features themselves go, once the loss has its gradient
    CostCurve backward{1};  // from there to the end; the features' gradients included
  };

  /// sample: on the parts' device.
  TowerCosts(TrainingRun& run, std::string precision, const Batch& sample);

  /// accumulate: parameters have a gradient already that a pass adds to.
  const Pass& pass(bool accumulate);
  /// One that has been measured, or the first.
  const Pass& any_pass() { return pass(further_ && !first_); }
  /// A forward pass without gradients.
  const CostCurve& forward_only();

  /// Runs a pass of so many samples.
  void run(std::int64_t samples);

  /// Of the sample, detached.
  const Features& features() const { return features_; }
  /// Bytes of the features of so many samples, and of those of them that take a gradient.
  std::int64_t feature_bytes(std::int64_t samples) const;
  std::int64_t feature_gradient_bytes(std::int64_t samples) const;

 private:
  void measure(Pass& pass, bool accumulate);

  TrainingRun& run_;
  std::string precision_;
  Batch sample_;
  Features features_;
  std::optional<Pass> first_, further_;
  std::optional<CostCurve> silent_;
};

/// Numbers of samples that passes are measured with: large enough on a GPU that the size of a block of its allocator
/// matters little.
std::int64_t measured_samples(const at::Device& device);

}  // namespace tessera
