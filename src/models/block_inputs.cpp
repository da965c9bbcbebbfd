#include "src/models/block_inputs.h"

namespace tessera {
namespace {

thread_local BlockInputs* current_block_inputs = nullptr;

}  // namespace

BlockInputs::BlockInputs() : outer_(current_block_inputs) {
  current_block_inputs = this;
}

BlockInputs::~BlockInputs() {
  current_block_inputs = outer_;
}

bool BlockInputs::recording() {
  return current_block_inputs != nullptr;
}

at::Tensor BlockInputs::seen(const at::Tensor& input) {
  if (!recording()) return input;
  return current_block_inputs->last_ = input.detach().requires_grad_();
}

}  // namespace tessera
