#include "src/evaluation/tasks/caption_decoding.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <tessera/base/text.h>

namespace tessera {
namespace {

at::Device device_of(const Captioning& captioning) {
  return captioning.parameters().front().device();
}

}  // namespace

std::shared_ptr<Captioning> make_captioning(const EvaluationContext& context, const std::string& task) {
  if (context.loss != nullptr) {
    const std::shared_ptr<Objective> objective = context.loss->objective();
    if (auto own = std::dynamic_pointer_cast<Captioning>(objective)) return own;
    for (const auto& item : objective->named_modules("", /*include_self=*/false))
      if (auto part = std::dynamic_pointer_cast<Captioning>(item.value())) return part;
  }
  throw TaskMisfit(concat(task, " needs a decoder of captions, which this model does not have: give a checkpoint or run folder of "
                                "trainer whose objective is captioning, or leave the task out"));
}

TowerFeatures on_device_of(const Captioning& captioning, const TowerFeatures& features) {
  return map_tensors(features, [device = device_of(captioning)](const at::Tensor& tensor) { return tensor.to(device); });
}

TowerInput on_device_of(const Captioning& captioning, const TowerInput& texts) {
  return texts.to(device_of(captioning));
}

SpecialIds special_ids_of(const Tokenizer& tokenizer) {
  const std::vector<std::int64_t> special = tokenizer.special_ids(), text = tokenizer.encode("a");
  const auto is_special = [&](std::int64_t id) { return contains(special, id); };
  SpecialIds out;
  if (!text.empty() && is_special(text.front())) out.begin = text.front();
  if (!text.empty() && is_special(text.back())) out.ends.push_back(text.back());
  if (is_special(tokenizer.pad_id()) && tokenizer.pad_id() != out.begin) out.ends.push_back(tokenizer.pad_id());
  return out;
}

}  // namespace tessera
