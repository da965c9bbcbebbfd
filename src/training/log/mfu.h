#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "src/measure/step_meter.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// Measures model FLOPs utilization: the share of the device's peak FLOP/s that training achieves. Operations are counted only in
/// the first step of a session. Model FLOPs include the forward and the backward pass once each, but not recomputation by
/// activation checkpointing, GradCache and fused kernels (Chowdhery et al. 2022, PaLM, appendix B).
class Mfu {
 public:
  /// Takes the peak FLOP/s from the settings, from the GPU's data sheet, or from a measurement that takes a few tenths of a second.
  Mfu(const Config& config, const at::Device& device);

  /// Returns true if the next step's operations must still be counted.
  bool wants_count() const { return !counted_; }
  /// Sets the operations per sample from those that `counter` counted while one device trained on `samples` samples.
  void counted(const FlopCounter& counter, std::int64_t samples);

  /// Returns the model's TFLOP/s per device; nothing if no step has been counted yet.
  std::optional<double> tflops(double samples_per_second_and_device) const;
  /// Returns these TFLOP/s as a share of the peak. If they exceed a measured peak (because the machine was busy during the
  /// measurement), the peak is measured again and raised to at least this rate, so that the share is never above 1.
  std::optional<double> share(std::optional<double> tflops);
  /// Returns a line for the log if the peak has been raised since the last call.
  std::optional<std::string> news();

  /// Returns a line for the log with the operations per sample and the peak that the MFU refers to. `texts` describes the texts of the
  /// counted batch ("texts of 31 tokens"); it may be empty.
  std::string describe(const std::string& texts = "") const;

 private:
  bool counted_ = false;
  double flops_per_sample_ = 0, recomputed_per_sample_ = 0;
  std::function<double()> measure_;  // measures the peak; empty if the peak is known
  double peak_tflops_ = 0;
  std::string peak_origin_, news_;
};

}  // namespace tessera
