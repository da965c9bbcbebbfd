#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "src/models/transformer_block.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/models/adaptation.h>

namespace tessera {
namespace {

constexpr const char* kAdapterPrefix = "lora_";

std::vector<std::shared_ptr<TransformerBlock>> blocks_of(const Encoder& encoder) {
  std::vector<std::shared_ptr<TransformerBlock>> out;
  for (const auto& module : encoder.modules(/*include_self=*/false))
    if (auto block = std::dynamic_pointer_cast<TransformerBlock>(module)) out.push_back(std::move(block));
  return out;
}

void check_blocks(const LoraSettings& settings, std::size_t blocks, const std::string& encoder, const std::string& path) {
  if (blocks == 0)
    user_error(path, ": ", encoder, " has no transformer blocks to adapt: LoRA is for vit, text_transformer and text_group_encoder");
  for (const std::int64_t block : settings.blocks)
    if (block >= static_cast<std::int64_t>(blocks))
      user_error(path, ".blocks: there is no block ", block, ": the encoder has ", blocks, ", numbered from 0");
}

void add_adapters(Encoder& encoder, const LoraSettings& settings, const std::string& name, const std::string& path) {
  const auto blocks = blocks_of(encoder);
  check_blocks(settings, blocks.size(), name, path);
  std::set<std::string> found;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!settings.blocks.empty() && !contains(settings.blocks, static_cast<std::int64_t>(i))) continue;
    for (const auto& module : blocks[i]->adaptable_modules()) {
      auto& adaptable = dynamic_cast<Adaptable&>(*module);
      for (const LinearMap& map : adaptable.linear_maps()) {
        if (!contains(settings.layers, map.layer)) continue;
        const std::int64_t in = module->named_parameters()[map.parameter].size(1);
        if (settings.rank > std::min(in, map.rows))
          user_error(path, ".rank: is ", settings.rank, ", but ", map.layer, " maps ", in, " numbers to ", map.rows,
                     ": an update cannot have a greater rank than these");
        adaptable.add_adapter(*module, map, settings);
        found.insert(map.layer);
      }
    }
  }
  for (const std::string& layer : settings.layers)
    if (!found.contains(layer)) user_error(path, ".layers: no block of ", name, " has ", layer, ": leave it out");
}

}  // namespace

std::optional<config::Problem> validate(const TowerAdaptation& settings) {
  if (settings.lora) return std::nullopt;
  return config::Problem{"lora", "missing: set {lora: {rank: 8}}, or null for a tower that is not adapted"};
}

void adapt(DualEncoder& model, const AdaptSettings& settings, std::uint64_t seed) {
  if (settings.text && !model.has_text_tower()) user_error("adapt.text: this model has no text tower (model.text is null)");
  if (settings.image || settings.text) at::manual_seed(seed);
  if (settings.image)
    add_adapters(model.image_tower().encoder(), *settings.image->lora, model.settings().image.encoder.name, "adapt.image.lora");
  if (settings.text)
    add_adapters(model.text_tower().encoder(), *settings.text->lora, model.settings().text->encoder.name, "adapt.text.lora");
}

bool is_adapter(const std::string& name) {
  return name.substr(name.rfind('.') + 1).starts_with(kAdapterPrefix);
}

std::vector<WeightUpdate> weight_updates(const DualEncoder& model) {
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : model.state_dict()) names.emplace(tensor.unsafeGetTensorImpl(), name);
  const auto name_of = [&](const at::Tensor& tensor) { return names.at(tensor.unsafeGetTensorImpl()); };
  std::vector<WeightUpdate> out;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* adaptable = dynamic_cast<const Adaptable*>(module.get());
    if (adaptable == nullptr) continue;
    for (const LoraAdapter& each : adaptable->adapters())
      out.push_back({name_of(module->named_parameters()[each.map.parameter]), each.map.first, each.map.rows, name_of(each.a),
                     name_of(each.b), each.scale});
  }
  return out;
}

std::map<std::string, at::Tensor> merged(const std::map<std::string, at::Tensor>& weights,
                                         const std::vector<WeightUpdate>& updates) {
  const at::NoGradGuard no_grad;
  const auto wide = [&](const std::string& name) { return weights.at(name).detach().to(at::kCPU, at::kDouble); };
  std::map<std::string, at::Tensor> sums, out = weights;
  for (const WeightUpdate& update : updates) {
    at::Tensor& sum = sums.try_emplace(update.weight).first->second;
    if (!sum.defined()) sum = wide(update.weight).clone();
    sum.narrow(0, update.first, update.rows).add_(at::mm(wide(update.b), wide(update.a)), update.scale);
    out.erase(update.a);
    out.erase(update.b);
  }
  for (const auto& [name, sum] : sums) out[name] = sum.to(weights.at(name).options());
  return out;
}

std::map<std::string, at::Tensor> unmerged(const std::map<std::string, at::Tensor>& weights,
                                           const std::vector<WeightUpdate>& updates) {
  std::map<std::string, at::Tensor> out;
  for (const WeightUpdate& update : updates)
    for (const std::string& name : {update.weight, update.a, update.b}) out[name] = weights.at(name);
  return out;
}

MergedAdapters::MergedAdapters(DualEncoder& model) : model_(model) {
  const at::NoGradGuard no_grad;
  const std::vector<WeightUpdate> updates = weight_updates(model);
  if (updates.empty()) return;
  const std::map<std::string, at::Tensor> own = model.state_dict(), values = merged(own, updates);
  for (const auto& [name, tensor] : unmerged(own, updates)) {
    if (is_adapter(name)) continue;
    kept_.emplace_back(tensor.detach(), tensor.detach().clone());
    kept_.back().first.copy_(values.at(name));
  }
  set_merged(true);
}

MergedAdapters::~MergedAdapters() {
  if (kept_.empty()) return;
  const at::NoGradGuard no_grad;
  for (auto& [weight, before] : kept_) weight.copy_(before);
  set_merged(false);
}

void MergedAdapters::set_merged(bool merged) {
  for (const auto& module : model_.modules(/*include_self=*/false))
    if (auto* adaptable = dynamic_cast<Adaptable*>(module.get())) adaptable->set_merged(merged);
}

}  // namespace tessera
