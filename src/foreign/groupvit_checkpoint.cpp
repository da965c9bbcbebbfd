#include <ATen/ATen.h>

#include "src/foreign/foreign_config.h"
#include "src/foreign/groupvit_checkpoint.h"
#include "src/models/text_transformer.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

struct Renamed {
  std::string_view theirs, ours;
};

constexpr Renamed kParts[] = {{"img_encoder.", "visual."},
                              {"img_projector.", "visual.readout.head."},
                              {"text_encoder.", ""},
                              {"text_projector.", "head."}};

// Removes the prefix `module.`, which DistributedDataParallel adds, and the prefix `model.`, which checkpoints add if
// they contain more than the model.
std::string without_wrapper(std::string name) {
  for (const std::string_view prefix : {"model.", "module."})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

bool is_head(std::string_view theirs) {
  return theirs.ends_with("_projector.");
}

}  // namespace

ModelSettings groupvit_model() {
  TextTransformerSettings text;
  text.width = 256;
  text.heads = 4;
  text.activation = "quick_gelu";
  ModelSettings out;
  out.image = {{"groupvit"}, module_with("groups", {{"num_layers", 2}, {"pool", "before"}}), {"none"}};
  out.text = TowerSettings{chosen("text_transformer", text), module_with("eos", {{"position", "ids"}}), {"mlp"}};
  out.preprocessing.mean = {0.485, 0.456, 0.406};
  out.preprocessing.std = {0.229, 0.224, 0.225};
  return resolve(out, "groupvit");
}

std::map<std::string, at::Tensor> from_groupvit(const std::map<std::string, at::Tensor>& tensors,
                                                const std::string& origin) {
  std::map<std::string, at::Tensor> out;
  bool image = false;
  for (const auto& [wrapped, tensor] : tensors) {
    const std::string name = without_wrapper(wrapped);
    if (name == "logit_scale") out[name] = tensor;
    if (name == "logit_scale" || name == "multi_label_logit_scale") continue;
    const Renamed* part = nullptr;
    for (const Renamed& each : kParts)
      if (name.starts_with(each.theirs)) part = &each;
    if (part == nullptr)
      user_error(origin, ": tensor ", wrapped,
                 " is not one of GroupViT's: pass only the checkpoint's model, as docs/systems/text_group.md describes");
    image = image || part == &kParts[0];
    const at::Tensor value = is_head(part->theirs) && tensor.dim() == 3 ? tensor.squeeze(2) : tensor;
    out[std::string(part->ours) + name.substr(part->theirs.size())] = value.contiguous();
  }
  if (!image) user_error(origin, ": no tensor img_encoder.*: this is not a checkpoint of GroupViT's code");
  return out;
}

}  // namespace tessera
