#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/config/registry.h>

namespace tessera {

/// Of the folders FOLDER, FOLDER-2, FOLDER-3 and so on (`usual` is the first) the last one whose results.json was measured
/// with the same weights, data, tasks, settings and version, all slots, and without a failure; empty: none. `origin` holds
/// what results.json says of those.
std::string earlier_results(const std::string& usual, const nlohmann::json& origin,
                            const std::vector<config::ModuleSettings>& tasks);

}  // namespace tessera
