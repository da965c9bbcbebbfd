#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

namespace tessera {

/// Averages a bucket of gradients over the ranks, which send each other bfloat16 values. Each rank's values are rounded
/// to bfloat16 and summed in bfloat16, rounding to nearest after each addition. Then the sum is divided by the number
/// of ranks, in the bucket's own type.
class Bf16Hook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
};

}  // namespace tessera
