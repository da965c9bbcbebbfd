#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/evaluation/slot_choice.h"
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>

namespace tessera {

/// The model that --slots asks for: its embeddings keep only some slots, or a mask scales the parts of its image embeddings.
struct KeptSlots {
  std::unique_ptr<Embedder> embedder;
  std::vector<std::int64_t> slots;  // the kept slots; empty if --slots names a mask
  std::string description;          // description for the report
  nlohmann::json json;              // description for results.json
};

/// Parses --slots top:N or {top: N, ...}. If the option names no data, the run's validation data are used or, if there are none, the
/// suite's. If it names no classes or templates, those of the first zero_shot task are used. Throws UserError.
SlotSettings slot_settings(const std::string& option, const SuiteSettings& suite, const config::Node& run_config);

/// Carries out --slots. Chooses slots and writes them to `out`/slots.json, or reads a list of slots or a trained mask. Warns if
/// slots are chosen on the data of one of the tasks. `model` must outlive the result. Throws UserError.
KeptSlots keep_slots(const std::string& option, const SuiteSettings& suite, const config::Node& run_config,
                     const InferenceModel& loaded, const Embedder& model, const EvaluationContext& context,
                     const std::string& out);

}  // namespace tessera
