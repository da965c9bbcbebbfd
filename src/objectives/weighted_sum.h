#pragma once

#include <tessera/objectives/objective.h>

namespace tessera {

/// One objective of a weighted sum. In YAML the objective's own settings are next to the other keys: {name: filip, weight: 0.5, label:
/// tokens, token_drop_rate: 0.2}.
struct WeightedTermSettings {
  config::ModuleSettings objective;
  double weight = 1.0;  // factor of the objective's loss
  std::string label;    // prefix of the objective's terms and parameters; if empty, the objective's name is the prefix

  const std::string& label_or_name() const { return label.empty() ? objective.name : label; }
};

/// Also reads an earlier YAML form in which the objective's settings are in a group `settings`.
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

void fields(auto& v, WeightedSumSettings& s) {
  v("objectives", s.objectives,
    "the objectives to add up; each entry has the objective's name, the weight of its loss, a unique label for its terms and "
    "parameters (default: the name), and, next to these keys, the objective's own settings");
  v("shared_logit_scale", s.shared_logit_scale,
    "all objectives share one learned temperature, which starts at 0.07 or at the value in an objective's settings (siglip's "
    "init_logit_scale)");
}
std::optional<config::Problem> validate(const WeightedSumSettings& s);

/// The sum of weight * loss of several objectives on the same features. Terms: `<label>.loss`, and the objectives' own terms,
/// details and statistics, prefixed with their label. Parameters: `logit_scale` if shared, and `objectives.<label>.<parameter>`.
class WeightedSum : public Objective {
 public:
  /// Throws UserError if an objective rejects its settings, or if two state different initial values of the shared logit_scale.
  WeightedSum(const WeightedSumSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  bool looks_ahead() const override;
  void before_step(const std::vector<const Batch*>& batches, const StepContext& step) override;
  void after_step(const StepContext& done) override;
  bool follows_step() const override;
  std::vector<std::int64_t> nested_widths() const override;
  /// Returns the momentum that the objectives with a teacher have in common. Throws UserError if their momenta differ, because a
  /// run keeps only one teacher.
  double teacher_momentum(const StepContext& step) const override;

 private:
  struct Term {
    std::string label;
    double weight;
    std::shared_ptr<Objective> objective;
  };
  void start_shared_scale(const at::Tensor& logit_scale) const;
  static StepContext context_of(std::size_t term, const StepContext& context);

  std::vector<Term> terms_;
};

}  // namespace tessera
