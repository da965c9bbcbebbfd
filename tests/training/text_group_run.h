#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the resolved configuration of tiny_yaml with group towers, both losses of the text group transformer, and overrides.
Config text_group_config(const std::string& run, const std::vector<std::string>& overrides = {});

}  // namespace tessera
