#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/config/registry.h>

namespace tessera {

/// Returns the last of the folders FOLDER, FOLDER-2, FOLDER-3, ... (FOLDER is `usual`) whose results can be reused. Results can be reused
/// if results.json has the weights, data, tasks, settings and version of `origin` and `tasks`, if all slots were used, and if no task
/// failed. Returns an empty string if there is no such folder.
std::string earlier_results(const std::string& usual, const nlohmann::json& origin,
                            const std::vector<config::ModuleSettings>& tasks);

}  // namespace tessera
