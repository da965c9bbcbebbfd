#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/bench/loss_bench.h>
#include <tessera/measure/machine.h>
#include <tessera/measure/step_meter.h>
#include <tessera/models/autocast.h>
#include <tessera/objectives/objective.h>

namespace tessera::bench {
namespace {

struct Counted {
  double flops = 0;
  std::int64_t activations = 0;
};

Batch random_batch(const DualEncoder& model, const Needs& needs, std::int64_t size, const at::Device& device) {
  const config::Size side = model.settings().preprocessing.image_size;
  const at::TensorOptions bytes = at::TensorOptions(device).dtype(at::kByte);
  Batch batch;
  for (const auto& [view, wanted] : needs.images) {
    TowerInput& input = batch.images[view];
    if (wanted.regions)
      input.regions = at::randn({size, 10, model.image_tower().encoder().region_width()}, bytes.dtype(at::kFloat));
    else
      input.pixels = at::randint(256, {size, 3, side.height, side.width}, bytes);
  }
  for (const auto& [view, wanted] : needs.texts) {
    const Encoder& encoder = model.text_tower().encoder();
    const std::int64_t length = encoder.context_length();
    batch.texts[view] = text_input(at::randint(1, encoder.vocab_size(), {size, length}, bytes.dtype(at::kLong)),
                                   at::ones({size, length}, bytes.dtype(at::kBool)));
  }
  batch.keys.resize(static_cast<std::size_t>(size));
  return batch;
}

// The sum of everything that an objective would see.
at::Tensor sum_of(const Features& features) {
  at::Tensor sum;
  for_each_tensor(features, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    const at::Tensor part = tensor.sum(at::kFloat);
    sum = sum.defined() ? sum + part : part;
  });
  return sum;
}

Counted count_step(DualEncoder& model, const Needs& needs, std::int64_t size, const at::Device& device,
                   at::ScalarType dtype) {
  const Batch batch = random_batch(model, needs, size, device);
  model.zero_grad();
  Counted counted;
  const FlopCounter flops;
  const PeakMemory memory(device);
  Features features;
  {
    std::optional<Autocast> autocast;
    if (dtype == at::kBFloat16) autocast.emplace(device.type());
    features = model.forward(batch, needs);
  }
  counted.activations = memory.held();
  sum_of(features).backward();
  counted.flops = flops.flops();
  return counted;
}

}  // namespace

ModelSettings load_model_settings(const std::string& path) {
  const config::Node tree = config::load_yaml(path);
  const config::Node* model = tree.find("model");
  if (model == nullptr)
    user_error(path, ": model: missing; a configuration of trainer such as configs/sparc_vitb16.yaml has it");
  return resolve(config::read<ModelSettings>(*model, "model"), "model");
}

TowerCost measure_towers(const ModelSettings& settings, const NamedObjective& objective, const at::Device& device,
                         at::ScalarType dtype) {
  DualEncoder model(settings);
  model.to(device);
  const auto loss = objectives().make(objective.choice, objective.label, ObjectiveContext{model.embed_dim()});
  const Needs needs = loss->needs();
  TowerCost cost;
  cost.objective = objective.label;
  for (const std::vector<at::Tensor>& parameters : {model.parameters(), loss->parameters()}) {
    for (const at::Tensor& parameter : parameters) {
      cost.parameters += parameter.numel();
      cost.state += 4 * static_cast<std::int64_t>(parameter.nbytes());
    }
  }
  // The difference of two sizes leaves out what does not grow with the batch (low-precision copies of the weights).
  const Counted one = count_step(model, needs, 1, device, dtype), two = count_step(model, needs, 2, device, dtype);
  cost.flops = two.flops - one.flops;
  cost.activations = static_cast<double>(two.activations - one.activations);
  return cost;
}

}  // namespace tessera::bench
