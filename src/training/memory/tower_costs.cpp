#include "src/training/memory/tower_costs.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/measure/machine.h>
#include "src/training/memory/sample_batch.h"
#include <tessera/measure/step_meter.h>
#include <tessera/training/step/grad_cache.h>

namespace tessera {
namespace {

struct ShapesOfFeatures : torch::CustomClassHolder {
  struct Shape {
    std::vector<std::int64_t> sizes;
    at::TensorOptions options;
    bool gradient;
  };
  std::vector<Shape> all;
};

// Stands for a loss that keeps nothing of the features: what remains is what the towers themselves need.
class StandInLoss : public torch::autograd::Function<StandInLoss> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::TensorList features) {
    const auto shapes = c10::make_intrusive<ShapesOfFeatures>();
    for (const at::Tensor& each : features)
      shapes->all.push_back({each.sizes().vec(), each.options(), each.requires_grad()});
    ctx->saved_data["shapes"] = at::IValue::make_capsule(shapes);
    return at::zeros({}, at::TensorOptions(features[0].device()));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list /*gradients*/) {
    const auto shapes = c10::static_intrusive_pointer_cast<ShapesOfFeatures>(ctx->saved_data["shapes"].toCapsule());
    torch::autograd::variable_list out;
    for (const ShapesOfFeatures::Shape& each : shapes->all)
      out.push_back(each.gradient ? at::zeros(each.sizes, each.options) : at::Tensor());
    return out;
  }
};

std::vector<at::Tensor> floating(Features& features) {
  std::vector<at::Tensor> out;
  for_each_tensor(features, [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_floating_point()) out.push_back(tensor);
  });
  return out;
}

}  // namespace

std::int64_t measured_samples(const at::Device& device) {
  return device.is_cpu() ? 3 : 32;
}

TowerCosts::TowerCosts(TrainingRun& run, std::string precision, const Batch& sample)
    : run_(run), precision_(std::move(precision)), sample_(sample) {
  const at::NoGradGuard no_grad;
  features_ = map_tensors(encode_batch(run_, sample_, precision_), [](const at::Tensor& tensor) { return tensor.detach(); });
}

const TowerCosts::Pass& TowerCosts::pass(bool accumulate) {
  std::optional<Pass>& wanted = accumulate ? further_ : first_;
  if (!wanted) measure(wanted.emplace(), accumulate);
  return *wanted;
}

void TowerCosts::measure(Pass& pass, bool accumulate) {
  const std::int64_t most = measured_samples(run_.device);
  for (const std::int64_t count : {2 * most / 3, most}) {
    const Batch batch = repeated(sample_, count);
    if (!accumulate) run_.optimizer->zero_grad();
    Features features;
    at::Tensor root;
    const FlopCounter counter;
    MemoryTrace forward = MemoryTrace::of([&] {
      features = encode_batch(run_, batch, precision_);
      root = StandInLoss::apply(at::TensorList(floating(features)));
      synchronize(run_.device);
    });
    const double forward_flops = counter.flops();
    pass.forward.add(count, std::move(forward), forward_flops);
    pass.dropped.add(count, MemoryTrace::of([&] { features = {}; }));
    MemoryTrace backward = MemoryTrace::of([&] {
      torch::autograd::backward({root}, {});
      synchronize(run_.device);
    });
    pass.backward.add(count, std::move(backward), counter.flops() - forward_flops);
  }
}

void TowerCosts::run(std::int64_t samples) {
  Features features = encode_batch(run_, repeated(sample_, samples), precision_);
  at::Tensor root = StandInLoss::apply(at::TensorList(floating(features)));
  features = {};
  torch::autograd::backward({root}, {});
  synchronize(run_.device);
}

const CostCurve& TowerCosts::forward_only() {
  if (silent_) return *silent_;
  silent_.emplace(1);
  const at::NoGradGuard no_grad;
  const std::int64_t most = measured_samples(run_.device);
  for (const std::int64_t count : {2 * most / 3, most}) {
    const Batch batch = repeated(sample_, count);
    Features features;
    MemoryTrace trace = MemoryTrace::of([&] {
      features = encode_batch(run_, batch, precision_);
      synchronize(run_.device);
    });
    silent_->add(count, std::move(trace));
  }
  return *silent_;
}

std::int64_t TowerCosts::feature_bytes(std::int64_t samples) const {
  return bytes_of(features_) / sample_.size() * samples;
}

std::int64_t TowerCosts::feature_gradient_bytes(std::int64_t samples) const {
  Features features = features_;
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : floating(features)) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes / sample_.size() * samples;
}

}  // namespace tessera
