#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/config/registry.h>

namespace tessera {

/// Returns the last of the folders FOLDER, FOLDER-2, FOLDER-3, ... (FOLDER is `usual`) whose results can be reused. Results can be reused
/// if their weights, data, batch size and version equal those in `origin`, their tasks and task settings equal `tasks`, all slots were
/// used, and no task failed. Returns an empty string if there is no such folder.
std::string earlier_results(const std::string& usual, const nlohmann::json& origin,
                            const std::vector<config::ModuleSettings>& tasks);

}  // namespace tessera
