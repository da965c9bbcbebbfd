#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "src/objectives/weighted_sum.h"
#include <tessera/base/error.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

namespace config {

WeightedTermSettings Value<WeightedTermSettings>::read(const Node& node, const std::string& path,
                                                       const WeightedTermSettings&) {
  WeightedTermSettings term;
  Node rest = node;
  for (const char* own : {"weight", "label", "settings"}) rest.erase(own);
  if (const Node* weight = node.find("weight")) term.weight = Value<double>::read(*weight, path + ".weight", 1);
  if (const Node* label = node.find("label")) term.label = Value<std::string>::read(*label, path + ".label", "");
  if (const Node* nested = node.find("settings")) {
    if (!nested->is_map() && !nested->is_null())
      fail(*nested, path + ".settings", "expected a group of settings, got " + nested->describe());
    for (const auto& [key, value] : nested->members()) {
      if (rest.find(key) != nullptr) fail(value, path + ".settings." + key, "is also set outside of settings: remove one of the two");
      rest.set(key, value);
    }
  }
  term.objective = objectives().resolve(Value<ModuleSettings>::read(rest, path, {}), path);
  return term;
}

Node Value<WeightedTermSettings>::dump(const WeightedTermSettings& value) {
  Node node = Node::map({{"name", Node::scalar(value.objective.name, {}, true)},
                         {"weight", Value<double>::dump(value.weight)},
                         {"label", Value<std::string>::dump(value.label_or_name())}});
  for (const auto& [key, setting] : value.objective.settings.members()) node.set(key, setting);
  return node;
}

}  // namespace config

std::optional<config::Problem> validate(const WeightedSumSettings& s) {
  if (s.objectives.empty()) return config::Problem{"objectives", "is empty: name at least one objective"};
  std::set<std::string> labels;
  for (const WeightedTermSettings& term : s.objectives) {
    const std::string& label = term.label_or_name();
    if (label.find('.') != std::string::npos)
      return config::Problem{"objectives", "label " + label + " must not contain a dot"};
    if (!labels.insert(label).second)
      return config::Problem{"objectives", "label " + label + " is used twice: give each objective its own label"};
  }
  return std::nullopt;
}

WeightedSum::WeightedSum(const WeightedSumSettings& settings, const ObjectiveContext& context) {
  ObjectiveContext of_terms = context;
  of_terms.logit_scale = settings.shared_logit_scale
                             ? register_parameter("logit_scale", at::full({}, kInitialLogitScale, at::kFloat))
                             : at::Tensor();
  const auto group = register_module("objectives", std::make_shared<torch::nn::Module>("objectives"));
  for (const WeightedTermSettings& term : settings.objectives) {
    const std::string& label = term.label_or_name();
    auto objective = tessera::objectives().make(term.objective, "objectives." + label, of_terms);
    group->register_module(label, objective);
    terms_.push_back({label, term.weight, std::move(objective)});
  }
  if (of_terms.logit_scale.defined()) start_shared_scale(of_terms.logit_scale);
}

// Sets the shared logit_scale to the initial value that the settings of its objectives state.
void WeightedSum::start_shared_scale(const at::Tensor& logit_scale) const {
  const at::NoGradGuard no_grad;
  const Term* first = nullptr;
  for (const Term& term : terms_) {
    const auto* contrastive = dynamic_cast<const ContrastiveObjective*>(term.objective.get());
    if (contrastive == nullptr || !contrastive->initial_logit_scale()) continue;
    const auto own = static_cast<float>(*contrastive->initial_logit_scale());
    if (first != nullptr && logit_scale.item<float>() != own)
      user_error("objectives: ", first->label, " starts with a logit_scale of ", logit_scale.item<float>(), ", ", term.label, " with ", own,
                 ", but they share it: make them equal, or set shared_logit_scale: false");
    first = &term;
    logit_scale.fill_(own);
  }
}

// Returns the context for a term. The term's teacher is the corresponding term of context.teacher, which is a WeightedSum.
StepContext WeightedSum::context_of(std::size_t term, const StepContext& context) {
  StepContext own = context;
  if (own.teacher != nullptr) own.teacher = static_cast<WeightedSum*>(own.teacher)->terms_[term].objective.get();
  return own;
}

std::map<std::string, double> WeightedSum::chance_levels(std::int64_t pairs) const {
  std::map<std::string, double> levels;
  for (const Term& term : terms_)
    if (term.weight != 0)
      for (const auto& [name, level] : term.objective->chance_levels(pairs)) levels[term.label + "." + name] = level;
  return levels;
}

Losses WeightedSum::forward(const Features& features, const StepContext& context) {
  Losses sum;
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    const Term& term = terms_[i];
    Losses losses = term.objective->forward(features, context_of(i, context));
    const at::Tensor weighted = term.weight * losses.total;
    sum.total = sum.total.defined() ? sum.total + weighted : weighted;
    sum.terms.emplace_back(term.label + ".loss", losses.total);
    for (auto& [name, value] : losses.terms) sum.terms.emplace_back(term.label + "." + name, value);
    for (auto& [name, value] : losses.details) sum.details.emplace_back(term.label + "." + name, value);
    for (auto& [name, value] : losses.statistics) sum.statistics.emplace_back(term.label + "." + name, value);
    for (auto& [name, value] : losses.used) sum.used.emplace_back(term.label + "." + name, value);
  }
  return sum;
}

Needs WeightedSum::needs() const {
  Needs all = terms_.front().objective->needs();
  for (const Term& term : terms_) all.merge(term.objective->needs());
  return all;
}

bool WeightedSum::looks_ahead() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const Term& term) { return term.objective->looks_ahead(); });
}

void WeightedSum::before_step(const std::vector<const Batch*>& batches, const StepContext& step) {
  for (std::size_t i = 0; i < terms_.size(); ++i) terms_[i].objective->before_step(batches, context_of(i, step));
}

void WeightedSum::after_step(const StepContext& done) {
  for (std::size_t i = 0; i < terms_.size(); ++i) terms_[i].objective->after_step(context_of(i, done));
}

std::vector<std::int64_t> WeightedSum::nested_widths() const {
  std::set<std::int64_t> all;
  for (const Term& term : terms_)
    if (term.weight != 0)
      for (const std::int64_t width : term.objective->nested_widths()) all.insert(width);
  return {all.begin(), all.end()};
}

bool WeightedSum::follows_step() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const Term& term) { return term.objective->follows_step(); });
}

double WeightedSum::teacher_momentum(const StepContext& step) const {
  const Term* first = nullptr;
  double momentum = Objective::teacher_momentum(step);
  for (const Term& term : terms_) {
    if (!term.objective->needs().teacher()) continue;
    const double own = term.objective->teacher_momentum(step);
    if (first == nullptr) {
      first = &term;
      momentum = own;
    } else if (own != momentum) {
      user_error("objectives: ", first->label, " has a teacher momentum of ", momentum, " at an update, ", term.label, " of ",
                 own, ", but they share one teacher: make them equal");
    }
  }
  return momentum;
}

}  // namespace tessera
