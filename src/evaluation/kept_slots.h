#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/evaluation/tasks/task_settings.h"
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// Settings for choosing the slots that an evaluation keeps. Slots are chosen by their individual zero-shot accuracy (Vani et al.
/// 2024, 5.1).
struct SlotSettings {
  std::int64_t top = 0;
  TaskData data;
  TextList classes;
  TextList templates;
};

template <class Visitor>
void fields(Visitor& v, SlotSettings& s) {
  v("top", s.top, "number of slots to keep, the best ones", config::at_least(1));
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the first zero_shot task or, if there are none, those of the "
                          "source");
  v("templates", s.templates, "prompts; empty: those of the first zero_shot task or, if there are none, \"a photo of a {}.\"");
}
std::optional<config::Problem> validate(const SlotSettings& settings);

/// The slots of a model that an evaluation keeps; the contents of a slot file.
struct SlotChoice {
  std::vector<std::int64_t> slots;  // indices of the slots, best first
  std::vector<double> accuracy;     // accuracy of each single slot; empty if unknown
  std::int64_t of = 0;              // the model's number of slots; 0 if unknown
  std::string model;                // weights_fingerprint() of the model; empty if the choice is for any model
  std::string data;                 // the data that the slots were chosen on

  /// Returns, for example, "32 of 64, by zero-shot accuracy on shapes validation, 500 samples".
  std::string describe() const;
};

/// Scores each slot separately and keeps the best slots. `count` is the model's number of slots. Throws UserError if `settings` asks for
/// more slots than the model has, or if the data lack labels or class names.
SlotChoice choose_slots(const Embedder& model, std::int64_t count, const SlotSettings& settings, const EvaluationContext& context);

/// Returns 16 hexadecimal digits that identify the weights. A slot file stores these digits to say which model it belongs to.
std::string weights_fingerprint(const std::map<std::string, at::Tensor>& weights);

/// Writes a slot file, a JSON object whose keys are the members of SlotChoice. read_slots() requires only the key `slots`.
void write_slots(const std::string& path, const SlotChoice& choice);
/// Reads a slot file. Throws UserError that names the file if it is not a slot file, or if its model has a different number of
/// slots than `count` or a different weights fingerprint.
SlotChoice read_slots(const std::string& path, std::int64_t count, const std::string& fingerprint);

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
