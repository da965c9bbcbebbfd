#pragma once

#include <tessera/probe/runner.h>

// Runners of modules in tessera_data, one line per file; data_registry.cpp calls them.
namespace tessera::probe {

void add_transform_runners(Runners& runners);

}  // namespace tessera::probe
