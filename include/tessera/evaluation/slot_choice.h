#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Settings for choosing the slots that an evaluation keeps, by each slot's own zero-shot accuracy (Vani et al. 2024, 5.1).
struct SlotSettings {
  std::int64_t top = 0;
  TaskData data;
  TextList classes;
  TextList templates;
};

template <class Visitor>
void fields(Visitor& v, SlotSettings& s) {
  v("top", s.top, "how many of the best slots to keep", config::at_least(1));
  data_fields(v, s.data);
  v("classes", s.classes, "class names by label; empty: those of the first zero_shot task, or else the source's");
  v("templates", s.templates, "prompts; empty: those of the first zero_shot task, or else \"a photo of a {}.\"");
}
std::optional<config::Problem> validate(const SlotSettings& settings);

/// The slots of a model that an evaluation keeps; the contents of a slot file.
struct SlotChoice {
  std::vector<std::int64_t> slots;  // best first
  std::vector<double> accuracy;     // each slot's own accuracy; empty: unknown
  std::int64_t of = 0;              // number of slots of the model; 0: unknown
  std::string model;                // weights_fingerprint() of the model; empty: any model
  std::string data;                 // the data they were chosen on

  /// Returns, for example, "32 of 64, by zero-shot accuracy on shapes validation, 500 samples".
  std::string describe() const;
};

/// Scores each slot on its own and keeps the best. `count` is the model's number of slots. Throws UserError if `settings` asks
/// for more, or if the data lack labels or class names.
SlotChoice choose_slots(const Embedder& model, std::int64_t count, const SlotSettings& settings,
                        const EvaluationContext& context);

/// Returns 16 hexadecimal digits that identify the weights; a slot file names its model by them.
std::string weights_fingerprint(const std::map<std::string, at::Tensor>& weights);

/// Writes JSON {"slots": [...], "accuracy": [...], "of", "model", "data"}; all keys but `slots` may be missing.
void write_slots(const std::string& path, const SlotChoice& choice);
/// Reads a file of write_slots(). Throws UserError naming the file if it is not one, or if it belongs to a model with another
/// number of slots than `count` or with another weights fingerprint.
SlotChoice read_slots(const std::string& path, std::int64_t count, const std::string& fingerprint);

}  // namespace tessera
