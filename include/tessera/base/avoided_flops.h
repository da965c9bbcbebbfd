#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

/// Floating-point operations of forward passes that this process has not made, because an operator takes its products in
/// another order than the model's definition does (slot_attention). Made FLOPs and these are what papers count.
class AvoidedFlops {
 public:
  static void add(std::int64_t flops) { total_ += flops; }
  static std::int64_t total() { return total_; }

 private:
  static inline std::atomic<std::int64_t> total_{0};
};

}  // namespace tessera
