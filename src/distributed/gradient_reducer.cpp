#include <algorithm>
#include <optional>
#include <unordered_map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "src/base/clock.h"
#include "src/distributed/connection.h"
#include "src/distributed/shard_reducer.h"

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

class AccumulatedHook : public torch::autograd::PostAccumulateGradHook {
 public:
  AccumulatedHook(std::size_t index, GradientWatch::Visit visit) : index_(index), visit_(std::move(visit)) {}
  void operator()(const at::Tensor& parameter) override {
    const at::NoGradGuard no_grad;
    visit_(index_, parameter.mutable_grad());
  }

 private:
  std::size_t index_;
  GradientWatch::Visit visit_;
};

// Returns each parameter's part of the buckets, in the layout that c10d::Reducer gives it.
std::vector<at::Tensor> bucket_views(const c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters) {
  std::unordered_map<const void*, std::size_t> places;
  for (std::size_t i = 0; i < parameters.size(); ++i) places.emplace(parameters[i].unsafeGetTensorImpl(), i);
  std::vector<at::Tensor> out(parameters.size());
  for (c10d::GradBucket& bucket : reducer.get_grad_buckets(/*return_zero_tensors=*/false)) {
    const std::vector<at::Tensor> gradients = bucket.getGradients(), owners = bucket.getParameters();
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const bool dense = owners[i].is_non_overlapping_and_dense();
      out[places.at(owners[i].unsafeGetTensorImpl())] =
          dense ? gradients[i].as_strided(owners[i].sizes(), owners[i].strides(), gradients[i].storage_offset()) : gradients[i];
    }
  }
  return out;
}

// A vectorized optimizer needs aligned gradients. If the parameters of odd sizes come last in their bucket, they leave the others aligned.
void align(std::vector<std::vector<std::size_t>>& buckets, const std::vector<at::Tensor>& parameters) {
  constexpr std::size_t kAlignment = 16;
  for (std::vector<std::size_t>& bucket : buckets)
    std::ranges::stable_partition(bucket, [&](std::size_t index) { return parameters[index].nbytes() % kAlignment == 0; });
}

}  // namespace

struct GradientWatch::Impl {
  std::vector<at::Tensor> parameters;
  std::vector<std::unique_ptr<torch::autograd::PostAccumulateGradHook>> earlier;
};

GradientWatch::GradientWatch(const std::vector<at::Tensor>& parameters, const Visit& visit) : impl_(std::make_unique<Impl>()) {
  impl_->parameters = parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    impl_->earlier.push_back(std::move(torch::autograd::impl::post_acc_grad_hooks(parameters[i])));
    torch::autograd::impl::set_post_acc_grad_hooks(parameters[i], std::make_unique<AccumulatedHook>(i, visit));
  }
}

GradientWatch::~GradientWatch() {
  for (std::size_t i = 0; i < impl_->earlier.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(impl_->parameters[i], std::move(impl_->earlier[i]));
}

namespace {

// Lets c10d::Reducer average whole gradients.
class BucketReducer : public GradientReducer::Impl {
 public:
  BucketReducer(const std::vector<at::Tensor>& parameters, const ProcessGroup& ranks, double bucket_mb, Compression compression, bool all_used)
      : connection_(ranks.connection()), on_cpu_(parameters.front().is_cpu()) {
    const c10::intrusive_ptr<c10d::ProcessGroup>& group = connection_->group;
    c10d::verify_params_across_processes(group, parameters, std::nullopt);
    const auto bytes = static_cast<std::int64_t>(bucket_mb * 1024 * 1024);
    // The first bucket is small, so that the first transfer starts early.
    const std::int64_t first = std::min<std::int64_t>(bytes, c10d::kDefaultFirstBucketBytes);
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        parameters, {static_cast<std::size_t>(first), static_cast<std::size_t>(bytes)}));
    // Gradients become ready from the last layer to the first.
    std::reverse(buckets.begin(), buckets.end());
    if (parameters.front().is_cuda()) align(buckets, parameters);
    // A read-out may go unused, depending on the objective, so the reducer must look for unused parameters.
    reducer_ = std::make_unique<c10d::Reducer>(
        parameters, std::move(buckets), group, std::vector<bool>(parameters.size(), false), bytes,
        /*find_unused_parameters=*/!all_used, /*gradient_as_bucket_view=*/true,
        std::unordered_map<std::size_t, std::string>{}, first,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<std::int64_t>{});
    if (compression == Compression::bf16) reducer_->register_comm_hook(std::make_unique<Bf16Hook>(group));
    views_ = bucket_views(*reducer_, parameters);
    // The reducer moves gradients into the buckets only in passes that reduce them.
    watch_.emplace(parameters, [this](std::size_t index, at::Tensor& gradient) {
      if (reducing_)
        last_computed_ = steady_seconds();
      else if (!gradient.is_alias_of(views_[index]))
        gradient = views_[index].copy_(gradient);
    });
  }

  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, BackwardPass pass) override {
    reducing_ = pass == BackwardPass::last;
    if (!reducing_) {
      torch::autograd::backward(outputs, gradients);
      return;
    }
    // The reducer looks for unused parameters and warns if it finds none. Finding none is normal here, so the warning is silenced.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward(outputs);
    last_computed_ = steady_seconds();
    torch::autograd::backward(outputs, gradients);
    // After the last gradient of the backward pass, a rank only waits for the reductions.
    if (on_cpu_) connection_->seconds_waited += steady_seconds() - last_computed_;
  }

 private:
  const std::shared_ptr<const ProcessGroup::Connection> connection_;
  const bool on_cpu_;
  std::unique_ptr<c10d::Reducer> reducer_;
  std::vector<at::Tensor> views_;  // the parameters' parts of the buckets
  std::optional<GradientWatch> watch_;
  bool reducing_ = false;
  double last_computed_ = 0;
};

}  // namespace

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, const ProcessGroup& group, double bucket_mb,
                                 Compression compression, bool all_used, std::shared_ptr<GradientShards> shards) {
  if (group.alone()) return;
  if (shards)
    impl_ = std::make_unique<ShardReducer>(std::move(parameters), std::move(shards), compression);
  else
    impl_ = std::make_unique<BucketReducer>(parameters, group, bucket_mb, compression, all_used);
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::backward(const at::Tensor& loss, BackwardPass pass) { backward({loss}, {at::ones_like(loss)}, pass); }

void GradientReducer::backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, BackwardPass pass) {
  if (impl_)
    impl_->backward(outputs, gradients, pass);
  else
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
