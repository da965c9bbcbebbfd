#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Resolves tiny_yaml with group towers and both losses of the text group transformer, and with overrides.
Config text_group_config(const std::string& run, const std::vector<std::string>& overrides = {});

}  // namespace tessera
