#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "src/distributed/connection.h"
#include "src/distributed/gradient_reducer.h"

namespace tessera {
namespace {

/// Averages a bucket of gradients over the ranks, which send each other bfloat16 values. Each rank's values are rounded
/// to bfloat16 and summed in bfloat16, rounding to nearest after each addition. Then the sum is divided by the number
/// of ranks, in the bucket's own type.
class Bf16Hook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
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
};

struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

struct GradientReducer::Impl {
  Impl(const std::vector<at::Tensor>& parameters, const c10::intrusive_ptr<c10d::ProcessGroup>& group, double bucket_mb,
       Compression compression, bool all_used) {
    c10d::verify_params_across_processes(group, parameters, std::nullopt);
    const auto bytes = static_cast<std::int64_t>(bucket_mb * 1024 * 1024);
    // The first bucket is small, so that the first transfer starts early.
    const std::int64_t first = std::min<std::int64_t>(bytes, c10d::kDefaultFirstBucketBytes);
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        parameters, {static_cast<std::size_t>(first), static_cast<std::size_t>(bytes)}));
    // Gradients become ready from the last layer to the first.
    std::reverse(buckets.begin(), buckets.end());
    // A read-out may go unused, depending on the objective, so the reducer must look for unused parameters.
    reducer = std::make_unique<c10d::Reducer>(
        parameters, std::move(buckets), group, std::vector<bool>(parameters.size(), false), bytes,
        /*find_unused_parameters=*/!all_used, /*gradient_as_bucket_view=*/false,
        std::unordered_map<std::size_t, std::string>{}, first,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<std::int64_t>{});
    if (compression == Compression::bf16) reducer->register_comm_hook(std::make_unique<Bf16Hook>(group));
  }
  std::unique_ptr<c10d::Reducer> reducer;
};

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, const ProcessGroup& group, double bucket_mb,
                                 Compression compression, bool all_used) {
  if (!group.alone()) impl_ = std::make_unique<Impl>(parameters, group.connection()->group, bucket_mb, compression, all_used);
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::backward(const at::Tensor& loss, bool reduce) {
  backward({loss}, {at::ones_like(loss)}, reduce);
}

void GradientReducer::backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                               bool reduce) {
  if (impl_ && reduce) {
    // The reducer looks for unused parameters and warns if it finds none. Finding none is normal here, so the warning is silenced.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    impl_->reducer->prepare_for_forward();
    impl_->reducer->prepare_for_backward(outputs);
  }
  torch::autograd::backward(outputs, gradients);
}

void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group) {
  if (group.alone()) return;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor data = tensor.detach();
    group.broadcast(data);
  }
}

}  // namespace tessera
