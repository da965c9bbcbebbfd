#pragma once

#include <memory>
#include <vector>

#include "src/objectives/captioning.h"
#include <tessera/evaluation/task.h>

namespace tessera {

/// Returns the captioning objective of the run or checkpoint; if there are several, the first one by name. If there is none,
/// throws a TaskMisfit that names the task.
std::shared_ptr<Captioning> make_captioning(const EvaluationContext& context, const std::string& task);

/// Moves the features of images to the device of the decoder.
TowerFeatures on_device_of(const Captioning& captioning, const TowerFeatures& features);
/// Moves texts to the device of the decoder.
TowerInput on_device_of(const Captioning& captioning, const TowerInput& texts);

/// The ids of the special tokens that a tokenizer puts around a text.
struct SpecialIds {
  std::int64_t begin = -1;         // the id that starts every text; -1 if texts start with their first word
  std::vector<std::int64_t> ends;  // the ids that end or pad a text
};
SpecialIds special_ids_of(const Tokenizer& tokenizer);

}  // namespace tessera
