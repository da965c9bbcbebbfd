#pragma once

#include <memory>
#include <vector>

#include <tessera/evaluation/task.h>
#include <tessera/objectives/captioning.h>

namespace tessera {

/// The objective captioning of the run or checkpoint, the first one by name where there are several. Throws TaskMisfit, with
/// the task's name, if there is none.
std::shared_ptr<Captioning> captioning_of(const EvaluationContext& context, const std::string& task);

/// Of one picture or more, on the device of the decoder.
TowerFeatures on_device_of(const Captioning& captioning, const TowerFeatures& features);
/// Likewise of texts.
TowerInput on_device_of(const Captioning& captioning, const TowerInput& texts);

/// Special ids of a tokenizer by what they do in a text, as it encodes one.
struct SpecialIds {
  std::int64_t begin = -1;         // what every text begins with; -1: its first word
  std::vector<std::int64_t> ends;  // what ends a text or fills up a batch
};
SpecialIds special_ids_of(const Tokenizer& tokenizer);

}  // namespace tessera
