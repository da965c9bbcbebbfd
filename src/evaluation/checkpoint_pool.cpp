#include <ATen/ATen.h>

#include "src/evaluation/checkpoint_pool.h"
#include "src/evaluation/model_evaluation.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using Weights = std::map<std::string, at::Tensor>;

constexpr std::string_view kObjective = "objective.", kMark = "pool.ln_q.weight", kPool = "pool.",
                           kTerms = "objectives.";

/// Returns the prefix with which the names of the pool's weights begin ("objective.pool."), or an empty string if there is no pool.
std::string prefix_of_pool(const Weights& weights) {
  for (const auto& [name, weight] : weights) {
    if (!name.starts_with(kObjective) || !name.ends_with(kMark) || name[name.size() - kMark.size() - 1] != '.')
      continue;
    return name.substr(0, name.size() - kMark.size() + kPool.size());
  }
  return "";
}

/// Returns the settings of the objective whose parameter names begin with `prefix`; nullptr if the configuration has none.
const config::Node* objective_at(const config::Node& run_config, std::string_view prefix) {
  const config::Node* node = run_config.find("objective");
  std::string_view rest = prefix.substr(kObjective.size());
  while (node != nullptr && rest.starts_with(kTerms)) {
    rest.remove_prefix(kTerms.size());
    const config::Node* terms = node->find("objectives");
    node = nullptr;
    if (terms == nullptr) break;
    const std::string_view label = rest.substr(0, rest.find('.'));
    for (const config::Node& term : terms->items()) {
      const config::Node* given = term.find("label");
      if (given == nullptr || given->text().empty()) given = term.find("name");
      if (given != nullptr && given->text() == label) node = &term;
    }
    rest.remove_prefix(std::min(rest.size(), label.size() + 1));
  }
  return node;
}

TextConditionedPoolSettings settings_of(const config::Node* objective) {
  config::Node own = config::Node::map();
  for (const char* key : {"heads", "zero_token"})
    if (const config::Node* value = objective == nullptr ? nullptr : objective->find(key); value != nullptr)
      own.set(key, *value);
  return config::read<TextConditionedPoolSettings>(own);
}

}  // namespace

std::shared_ptr<TextConditionedPool> checkpoint_pool(const InferenceModel& loaded) {
  const Weights& weights = loaded.file.weights;
  const std::string prefix = prefix_of_pool(weights);
  if (prefix.empty()) return nullptr;
  const auto refuse = [&](const auto&... what) {
    user_error(loaded.path, ": the weights ", prefix, "* do not make a text-conditioned pool: ", what...,
               "; take the checkpoint as trainer or tessera-convert wrote it");
  };
  std::shared_ptr<TextConditionedPool> pool;
  try {
    pool = std::make_shared<TextConditionedPool>(settings_of(objective_at(run_config_of(loaded), prefix)),
                                                 weights.at(prefix + "ln_q.weight").size(0));
  } catch (const UserError& error) {
    refuse(error.what());
  }
  const at::NoGradGuard no_grad;
  for (const auto& item : pool->named_parameters()) {
    const auto found = weights.find(prefix + item.key());
    if (found == weights.end()) refuse(item.key(), " is missing");
    if (found->second.sizes() != item.value().sizes())
      refuse(item.key(), " has the shape ", found->second.sizes(), " and not ", item.value().sizes());
    at::Tensor own = item.value();
    own.copy_(found->second);
  }
  pool->to(loaded.device);
  pool->eval();
  return pool;
}

}  // namespace tessera
