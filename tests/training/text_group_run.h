#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// tiny_yaml's run with towers of groups and both losses of the text group transformer, with overrides, resolved.
Config text_group_config(const std::string& run, const std::vector<std::string>& overrides = {});

}  // namespace tessera
