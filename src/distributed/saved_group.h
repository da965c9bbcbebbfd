#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Stores a process group for the backward pass of an autograd function.
struct SavedGroup : torch::CustomClassHolder {
  explicit SavedGroup(ProcessGroup g) : group(std::move(g)) {}
  ProcessGroup group;
};

inline void save_group(torch::autograd::AutogradContext* ctx, const ProcessGroup& group) {
  ctx->saved_data["group"] = at::IValue::make_capsule(c10::make_intrusive<SavedGroup>(group));
}

inline const ProcessGroup& saved_group(torch::autograd::AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<SavedGroup>(ctx->saved_data["group"].toCapsule())->group;
}

}  // namespace tessera
