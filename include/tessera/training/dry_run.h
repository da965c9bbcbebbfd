#pragma once

#include <cstdint>
#include <string>

#include <tessera/training/config.h>

namespace tessera {

/// What one step of a configuration costs.
struct StepCost {
  std::int64_t image_parameters = 0, text_parameters = 0, objective_parameters = 0;
  double forward_flops = 0, total_flops = 0;               // per sample; see FlopCounter for what is counted
  std::int64_t weights = 0, gradients = 0, optimizer = 0;  // bytes
  std::int64_t activations = 0;  // bytes that one micro-batch's forward pass holds for its backward pass
  std::int64_t peak = 0;         // bytes of the whole step at its highest, weights included
  std::int64_t batch_size = 0;
  double seconds = 0;  // of one micro-batch, forward and backward
  double loss = 0;
};

/// Builds everything and runs one step on the first batch; writes nothing.
StepCost measure_step(const Config& config);

/// The measurements as lines for the terminal.
std::string to_text(const StepCost& cost);

}  // namespace tessera
