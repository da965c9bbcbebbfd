#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/slot_choice.h>

namespace tessera {

/// A model restricted according to --slots.
struct KeptSlots {
  std::unique_ptr<Embedder> embedder;
  std::vector<std::int64_t> slots;  // empty: all, with the weights of a mask
  std::string description;          // for the report
  nlohmann::json json;              // for results.json
};

/// Parses --slots top:N or {top: N, ...} and fills in what it leaves out: the data from the run's validation data or else the
/// suite's, the classes and templates from the first zero_shot task. Throws UserError.
SlotSettings slot_settings(const std::string& option, const SuiteSettings& suite, const config::Node& run_config);

/// Carries out --slots: chooses slots and writes them to `out`/slots.json, or reads a list or a trained mask. Warns if they are
/// chosen on data that a task measures. `model` must outlive the result. Throws UserError.
KeptSlots keep_slots(const std::string& option, const SuiteSettings& suite, const config::Node& run_config,
                     const InferenceModel& loaded, const Embedder& model, const EvaluationContext& context,
                     const std::string& out);

}  // namespace tessera
