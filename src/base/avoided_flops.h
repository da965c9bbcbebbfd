#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

/// Counts the forward-pass FLOPs that this process has saved because an operator (slot_attention) multiplies in a different order than the
/// model's definition. The FLOPs that papers state are the sum of the performed and the saved FLOPs.
class AvoidedFlops {
 public:
  static void add(std::int64_t flops) { total_ += flops; }
  static std::int64_t total() { return total_; }

 private:
  static inline std::atomic<std::int64_t> total_{0};
};

}  // namespace tessera
