#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/slot_choice.h>

namespace tessera {

/// A model as --slots says that it be measured.
struct KeptSlots {
  std::unique_ptr<Embedder> embedder;
  std::vector<std::int64_t> slots;  // empty: all, with the weights of a mask
  std::string description;          // for people
  nlohmann::json json;              // for results.json
};

/// How --slots top:N or {top: N, ...} is meant in this suite, with data, classes and templates where it names none: the
/// run's validation data or else the suite's, and those of the first zero_shot task. Throws UserError.
SlotSettings slot_settings(const std::string& option, const SuiteSettings& suite, const config::Node& run_config);

/// Carries out --slots: chooses slots and writes them to `out`/slots.json, or reads a list or a trained mask. Warns when
/// they are chosen on data that is measured. `model` outlives the result. Throws UserError.
KeptSlots keep_slots(const std::string& option, const SuiteSettings& suite, const config::Node& run_config,
                     const InferenceModel& loaded, const Embedder& model, const EvaluationContext& context,
                     const std::string& out);

}  // namespace tessera
