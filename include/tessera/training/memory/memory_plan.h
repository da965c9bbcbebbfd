#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Share of a device's memory that a plan may take; the rest is for what it cannot see: gaps between blocks, libraries'
/// own buffers, the program itself.
inline constexpr double kUsableMemory = 0.9;

/// Where one rank's memory goes, in bytes.
struct MemoryPlan {
  int ranks = 1;
  std::int64_t batch = 0, micro_batch = 0;  // samples of a rank; of those, what the towers see at a time

  // there from start to end
  std::int64_t weights = 0, optimizer = 0, average = 0;
  std::int64_t buckets = 0;     // of the gradients' reduction
  std::int64_t checkpoint = 0;  // the copy that is written while training goes on, in the host's memory
  std::int64_t ready = 0;       // batches kept ready by the loader, in the host's memory
  // for a time
  std::int64_t gradients = 0;
  std::int64_t data = 0;         // the batch itself
  std::int64_t activations = 0;  // what the towers keep of a micro-batch for their backward pass
  std::int64_t features = 0;     // of the whole batch, where it is larger than a micro-batch
  std::int64_t loss = 0;         // the most that the loss needs beyond the features: their gradients, similarities, ...

  std::int64_t peak = 0;       // of a step, with what is there from start to end; host memory apart
  std::string moment;          // where the peak is: "the loss"
  bool loss_measured = false;  // the loss was measured at this batch size; otherwise extrapolated

  bool gpu = false;
  std::int64_t available = 0;       // on the device, to this rank
  std::int64_t host_available = 0;  // on the host, to this rank

  std::int64_t host() const { return checkpoint + ready; }
  /// What must find room on the device: on a CPU the host's share as well.
  std::int64_t total() const { return gpu ? peak : peak + host(); }
  bool fits() const;
};

/// The plan as lines for the terminal, with what to do where it does not fit.
std::string to_text(const MemoryPlan& plan, const Config& config);

/// "12.3 GiB of 16.0 GiB, highest in the loss: weights 0.6 GiB, ...": for the log and for messages.
std::string summary(const MemoryPlan& plan);

/// Settings that would lower this plan's peak, most useful first: "training.micro_batch: auto".
std::vector<std::string> ways_out(const MemoryPlan& plan, const Config& config);

}  // namespace tessera
