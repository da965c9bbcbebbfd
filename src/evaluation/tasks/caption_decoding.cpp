#include "src/evaluation/tasks/caption_decoding.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace tessera {
namespace {

at::Device device_of(const Captioning& captioning) {
  return captioning.parameters().front().device();
}

}  // namespace

std::shared_ptr<Captioning> captioning_of(const EvaluationContext& context, const std::string& task) {
  if (context.loss != nullptr) {
    const std::shared_ptr<Objective> objective = context.loss->objective();
    if (auto own = std::dynamic_pointer_cast<Captioning>(objective)) return own;
    for (const auto& item : objective->named_modules("", /*include_self=*/false))
      if (auto part = std::dynamic_pointer_cast<Captioning>(item.value())) return part;
  }
  throw TaskMisfit(concat(task, " asks a decoder of captions, which this model does not have: give a checkpoint or run folder of "
                                "trainer whose objective is captioning, or leave the task out"));
}

TowerFeatures on_device_of(const Captioning& captioning, const TowerFeatures& features) {
  return map_tensors(features, [device = device_of(captioning)](const at::Tensor& tensor) { return tensor.to(device); });
}

TowerInput on_device_of(const Captioning& captioning, const TowerInput& texts) {
  return texts.to(device_of(captioning));
}

SpecialIds special_ids_of(const Tokenizer& tokenizer) {
  SpecialIds out{.ends = tokenizer.special_ids()};
  // A text without words begins and ends, or ends alone.
  const std::vector<std::int64_t> empty = tokenizer.encode("");
  if (empty.size() >= 2 && std::ranges::find(out.ends, empty.front()) != out.ends.end() && empty[0] != empty[1]) {
    out.begin = empty.front();
    std::erase(out.ends, out.begin);
  }
  return out;
}

}  // namespace tessera
