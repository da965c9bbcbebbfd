#pragma once

#include <tessera/objectives/objective.h>

namespace tessera {

/// Makes a run's objective. Throws UserError if the settings are wrong or the objective's parameters do not fit into memory.
std::shared_ptr<Objective> make_objective(const config::ModuleSettings& choice, const std::string& path, const ObjectiveContext& context);

}  // namespace tessera
