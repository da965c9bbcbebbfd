#pragma once
#include <tessera/objectives/objective.h>
namespace tessera::config {
void for_each_value(const Node& node, const std::string& path, const std::function<void(const std::string&, const Node&)>& visit);
}
namespace tessera {
std::shared_ptr<Objective> make_objective(const config::ModuleSettings& choice, const std::string& path, const ObjectiveContext& context);
}  // namespace tessera
