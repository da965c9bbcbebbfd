#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

/// Shared code for registering operators with LibTorch's dispatcher, and for finding them there.
namespace tessera {

/// Returns a registered operator, such as "tessera::max_similarity". `Signature` is the type of the function that
/// implements it.
template <class Signature>
c10::TypedOperatorHandle<Signature> operation(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Registers an operator that is differentiable because the operators that it calls are differentiable.
template <auto* operate, auto* operate_under_autocast>
void implement(torch::Library& library, const char* name) {
  library.impl(name, torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(operate)));
  for (const c10::DispatchKey device : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
    library.impl(name, torch::dispatch(device, TORCH_FN(operate_under_autocast)));
}

/// Registers a kernel as the operator `name`, and the kernel's backward pass as the operator `name`_backward.
template <auto* forward, auto* backward, auto* forward_on_meta, auto* backward_on_meta, auto* forward_with_gradient>
void implement_passes(torch::Library& library, const std::string& name) {
  const std::string of_backward = name + "_backward";
  for (const c10::DispatchKey device : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
    library.impl(name.c_str(), torch::dispatch(device, TORCH_FN(forward)));
    library.impl(of_backward.c_str(), torch::dispatch(device, TORCH_FN(backward)));
  }
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(forward_on_meta)));
  library.impl(of_backward.c_str(), torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(backward_on_meta)));
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(forward_with_gradient)));
  library.impl(of_backward.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback()));
}

}  // namespace tessera
