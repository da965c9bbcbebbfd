#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// How the slots that an evaluation keeps are chosen: by zero-shot accuracy of each alone (Vani et al. 2024, 5.1).
struct SlotSettings {
  std::int64_t top = 0;
  TaskData data;
  TextList classes;
  TextList templates;
};

template <class Visitor>
void fields(Visitor& v, SlotSettings& s) {
  v("top", s.top, "slots to keep, the best ones", config::at_least(1));
  data_fields(v, s.data);
  v("classes", s.classes, "class names by label; empty: those of the first zero_shot task, or the source's own");
  v("templates", s.templates, "prompts; empty: those of the first zero_shot task, or \"a photo of a {}.\"");
}
std::optional<config::Problem> validate(const SlotSettings& settings);

/// Slots of a model that an evaluation keeps, as a file holds them.
struct SlotChoice {
  std::vector<std::int64_t> slots;  // best first
  std::vector<double> accuracy;     // of each alone; empty: not known
  std::int64_t of = 0;              // how many the model has; 0: not known
  std::string model;                // weights_fingerprint() of the model; empty: any
  std::string data;                 // what they were chosen on

  /// "32 of 64, by zero-shot accuracy on shapes validation, 500 samples".
  std::string describe() const;
};

/// Scores every slot alone and keeps the best. `count`: slots that the model has. Throws UserError when `settings` wants
/// more than there are, and for data that lack labels or class names.
SlotChoice choose_slots(const Embedder& model, std::int64_t count, const SlotSettings& settings,
                        const EvaluationContext& context);

/// Which model a list of slots belongs to: equal for equal weights, 16 hexadecimal digits.
std::string weights_fingerprint(const std::map<std::string, at::Tensor>& weights);

/// JSON {"slots": [...], "accuracy": [...], "of", "model", "data"}; all but `slots` may be missing.
void write_slots(const std::string& path, const SlotChoice& choice);
/// Throws UserError naming the file when it is no such list, and when it is a list of another model than the one of
/// `count` slots with these weights.
SlotChoice read_slots(const std::string& path, std::int64_t count, const std::string& fingerprint);

}  // namespace tessera
