#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include <tessera/measure/step_meter.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// How much of the device's arithmetic the training uses. The operations of one step are counted once, in the first
/// step of a session. Model FLOPs are those of the forward and the backward pass, once each: what activation
/// checkpointing, GradCache and fused kernels compute again is work that the device does but no progress of the model
/// (Chowdhery et al. 2022, PaLM, appendix B), and is left out.
class Mfu {
 public:
  /// Takes the peak from the settings, the GPU's data sheet, or a measurement of some tenths of a second.
  Mfu(const Config& config, const at::Device& device);

  /// Whether the next step's operations are still to be counted.
  bool wants_count() const { return !counted_; }
  /// What was counted while one device trained so many samples.
  void counted(const FlopCounter& counter, std::int64_t samples);

  /// The model's 1e12 FLOPs per second and device; nothing before a step was counted.
  std::optional<double> tflops(double samples_per_second_and_device) const;
  /// The share of the peak that these are. A measured peak that they exceed, for the machine was busy, is measured
  /// again and raised to no less than these: such a share is never above 1.
  std::optional<double> share(std::optional<double> tflops);
  /// A line for the log when the peak has been raised since the last call.
  std::optional<std::string> news();

  /// A line for the log: operations per sample, and what the share is of.
  /// `texts`: how long those of the counted batch were ("texts of 31 tokens"); may be empty.
  std::string describe(const std::string& texts = "") const;

 private:
  bool counted_ = false;
  double flops_per_sample_ = 0, recomputed_per_sample_ = 0;
  std::function<double()> measure_;  // the peak; empty: it is known
  double peak_tflops_ = 0;
  std::string peak_origin_, news_;
};

}  // namespace tessera
