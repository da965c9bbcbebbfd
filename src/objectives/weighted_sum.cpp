#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include <tessera/objectives/weighted_sum.h>

namespace tessera {

std::optional<config::Problem> validate(const WeightedSumSettings& s) {
  if (s.objectives.empty()) return config::Problem{"objectives", "is empty: name at least one objective"};
  std::set<std::string> labels;
  for (const WeightedTermSettings& term : s.objectives) {
    const std::string& label = term.label_or_name();
    if (term.name.empty()) return config::Problem{"objectives", "an objective has no name"};
    if (label.find('.') != std::string::npos)
      return config::Problem{"objectives", "label " + label + " must hold no dot"};
    if (!labels.insert(label).second)
      return config::Problem{"objectives", "label " + label + " is used twice: give each objective a label of its own"};
    objectives().resolve({term.name, term.settings}, "objectives." + label);
  }
  return std::nullopt;
}

WeightedSum::WeightedSum(const WeightedSumSettings& settings, const ObjectiveContext& context)
    : shared_(settings.shared_logit_scale) {
  const auto group = register_module("objectives", std::make_shared<torch::nn::Module>("objectives"));
  for (const WeightedTermSettings& term : settings.objectives) {
    const std::string& label = term.label_or_name();
    auto objective = tessera::objectives().make({term.name, term.settings}, "objectives." + label, context);
    group->register_module(label, objective);
    terms_.push_back({label, term.weight, std::move(objective)});
  }
  if (shared_)
    share_logit_scale(logit_scale_);
  else
    parameters_.erase("logit_scale");
}

// With the sum's own scale its objectives give up theirs; with another's the sum gives up its own as well.
void WeightedSum::share_logit_scale(const at::Tensor& logit_scale) {
  if (!shared_) return;
  if (!logit_scale.is_same(logit_scale_)) ContrastiveObjective::share_logit_scale(logit_scale);
  for (const Term& term : terms_)
    if (const auto tempered = std::dynamic_pointer_cast<ContrastiveObjective>(term.objective))
      tempered->share_logit_scale(logit_scale);
}

Losses WeightedSum::forward(const Features& features, const StepContext& context) {
  Losses sum;
  for (const Term& term : terms_) {
    Losses losses = term.objective->forward(features, context);
    const at::Tensor weighted = term.weight * losses.total;
    sum.total = sum.total.defined() ? sum.total + weighted : weighted;
    sum.terms.emplace_back(term.label + ".loss", losses.total);
    for (auto& [name, value] : losses.terms) sum.terms.emplace_back(term.label + "." + name, value);
    for (auto& [name, value] : losses.details) sum.details.emplace_back(term.label + "." + name, value);
  }
  return sum;
}

Needs WeightedSum::needs() const {
  Needs all = terms_.front().objective->needs();
  for (const Term& term : terms_) all.merge(term.objective->needs());
  return all;
}

void WeightedSum::after_step(const StepContext& done) {
  for (const Term& term : terms_) term.objective->after_step(done);
  if (shared_) ContrastiveObjective::after_step(done);
}

}  // namespace tessera
