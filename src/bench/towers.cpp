#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include <tessera/measure/machine.h>
#include <tessera/base/error.h>
#include <tessera/bench/loss_bench.h>
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
  const auto setting = [&](const char* key, std::int64_t otherwise) {
    const config::Node* node = model.settings().text.encoder.settings.find(key);
    return node == nullptr ? otherwise : config::Value<std::int64_t>::read(*node, key, otherwise);
  };
  const config::Size side = model.settings().preprocessing.image_size;
  const at::TensorOptions bytes = at::TensorOptions(device).dtype(at::kByte);
  const std::int64_t length = setting("context_length", 77);
  Batch batch;
  for (const std::string& view : needs.image_views)
    batch.images[view] = at::randint(256, {size, 3, side.height, side.width}, bytes);
  for (const std::string& text : needs.texts)
    batch.texts[text] = {at::randint(1, setting("vocab_size", 49408), {size, length}, bytes.dtype(at::kLong)),
                         at::ones({size, length}, bytes.dtype(at::kBool))};
  batch.keys.resize(static_cast<std::size_t>(size));
  return batch;
}

// The sum of everything that an objective would see.
at::Tensor sum_of(const Features& features) {
  at::Tensor sum;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    const at::Tensor part = tensor.sum(at::kFloat);
    sum = sum.defined() ? sum + part : part;
  };
  for (const auto& [name, image] : features.images) {
    add(image.global);
    add(image.tokens);
  }
  for (const auto& [name, text] : features.texts) {
    add(text.global);
    add(text.tokens);
  }
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
