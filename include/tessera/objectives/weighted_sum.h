#pragma once

#include <tessera/objectives/objective.h>

namespace tessera {

/// One objective of a weighted sum.
struct WeightedTermSettings {
  std::string name;
  double weight = 1.0;
  config::Node settings = config::Node::map();
  std::string label;

  const std::string& label_or_name() const { return label.empty() ? name : label; }
};

template <class Visitor>
void fields(Visitor& v, WeightedTermSettings& s) {
  v("name", s.name, "registered name of the objective");
  v("weight", s.weight, "factor of its loss");
  v("settings", s.settings, "the objective's own settings");
  v("label", s.label, "what its terms and parameters are called; must be unique; empty: the name");
}

struct WeightedSumSettings {
  std::vector<WeightedTermSettings> objectives;
  bool shared_logit_scale = true;
};

template <class Visitor>
void fields(Visitor& v, WeightedSumSettings& s) {
  v("objectives", s.objectives, "the objectives to add up");
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
