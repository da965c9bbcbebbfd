#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

/// FLOPs of forward passes that this process has saved because an operator multiplies in a different order than the model's
/// definition (slot_attention). Papers count the FLOPs performed plus these.
class AvoidedFlops {
 public:
  static void add(std::int64_t flops) { total_ += flops; }
  static std::int64_t total() { return total_; }

 private:
  static inline std::atomic<std::int64_t> total_{0};
};

}  // namespace tessera
