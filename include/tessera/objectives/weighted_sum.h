#pragma once

#include <tessera/objectives/objective.h>

namespace tessera {

/// One objective of a weighted sum. In YAML its own settings stand beside the other keys:
/// {name: filip, weight: 0.5, label: tokens, token_drop_rate: 0.2}.
struct WeightedTermSettings {
  config::ModuleSettings objective;
  double weight = 1.0;  // factor of its loss
  std::string label;    // what its terms and parameters are called; empty: its name

  const std::string& label_or_name() const { return label.empty() ? objective.name : label; }
};

/// Settings within a group `settings`, as they were written earlier, are read too.
template <>
struct config::Value<WeightedTermSettings> {
  static WeightedTermSettings read(const Node& node, const std::string& path, const WeightedTermSettings&);
  static Node dump(const WeightedTermSettings& value);
  static std::string type() { return "{name: NAME, weight: 1.0, label: NAME, settings...}"; }
};

struct WeightedSumSettings {
  std::vector<WeightedTermSettings> objectives;
  bool shared_logit_scale = true;
};

template <class Visitor>
void fields(Visitor& v, WeightedSumSettings& s) {
  v("objectives", s.objectives,
    "the objectives to add up: each a name, the factor of its loss, what its terms and parameters are called (its name, "
    "if nothing is said; unlike the others'), and its own settings beside them");
  v("shared_logit_scale", s.shared_logit_scale, "one learned temperature for all of them");
}
std::optional<config::Problem> validate(const WeightedSumSettings& s);

/// The sum of weight * loss of several objectives on the same features. Terms `<label>.loss` and the objectives' own
/// terms, details and statistics under their label. Parameters: `logit_scale` when shared, `objectives.<label>.<parameter>`.
class WeightedSum : public Objective {
 public:
  /// Throws UserError for settings that an objective refuses.
  WeightedSum(const WeightedSumSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  bool looks_ahead() const override;
  void before_step(const std::vector<const Batch*>& batches, const StepContext& step) override;
  void after_step(const StepContext& done) override;
  bool follows_step() const override;
  /// That of the objectives that want a teacher. Throws UserError when they differ: a run keeps one.
  double teacher_momentum(const StepContext& step) const override;

 private:
  struct Term {
    std::string label;
    double weight;
    std::shared_ptr<Objective> objective;
  };
  static StepContext context_of(std::size_t term, const StepContext& context);

  std::vector<Term> terms_;
};

}  // namespace tessera
