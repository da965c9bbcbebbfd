#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/config/registry.h>

namespace tessera {

/// Returns the last of the folders FOLDER, FOLDER-2, FOLDER-3 and so on (FOLDER is `usual`) whose results.json has the same
/// weights, data, tasks, settings and version, used all slots, and has no failure; empty if there is none. `origin` holds the
/// values to compare with.
std::string earlier_results(const std::string& usual, const nlohmann::json& origin,
                            const std::vector<config::ModuleSettings>& tasks);

}  // namespace tessera
