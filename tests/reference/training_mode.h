#pragma once

#include <vector>

#include <tessera/config/node.h>

namespace tessera::probe {

/// A case's settings, split into `training` and all other settings. `training` says whether the module is in training mode; only the other
/// settings are passed to the module. `training` is also removed from the settings of the objectives in a weighted_sum.
struct TrainingMode {
  config::Node settings;
  bool training = true;
};

inline TrainingMode training_mode_of(const config::Node& settings) {
  TrainingMode out{settings};
  if (const config::Node* mode = settings.find("training")) out.training = mode->text() == "true";
  out.settings.erase("training");
  const config::Node* objectives = settings.find("objectives");
  if (objectives == nullptr) return out;
  std::vector<config::Node> terms;
  for (config::Node term : objectives->items()) {
    const config::Node* own = term.find("settings");
    if (own != nullptr && own->is_map()) {
      TrainingMode inner = training_mode_of(*own);
      out.training = out.training && inner.training;
      term.set("settings", std::move(inner.settings));
    }
    terms.push_back(std::move(term));
  }
  out.settings.set("objectives", config::Node::sequence(std::move(terms), objectives->mark()));
  return out;
}

}  // namespace tessera::probe
