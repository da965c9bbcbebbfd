#include "src/distributed/bf16_hook.h"

#include <ATen/ATen.h>

namespace tessera {

c10::intrusive_ptr<c10::ivalue::Future> Bf16Hook::runHook(c10d::GradBucket& bucket) {
  const at::Tensor buffer = bucket.getBuffer();
  std::vector<at::Tensor> wire{buffer.to(at::kBFloat16)};
  const auto summed = state_->allreduce(wire)->getFuture();
  const auto mean = [buffer, ranks = state_->getSize()](c10::ivalue::Future& done) {
    const at::NoGradGuard no_grad;
    buffer.copy_(c10d::detail::parseCppCommHookResult(done.value())).div_(ranks);
    return c10::IValue(std::vector<at::Tensor>{buffer});
  };
  return summed->then(mean, summed->elementType());
}

}  // namespace tessera
