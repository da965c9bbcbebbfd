#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the YAML of tiny_yaml with STAIR's read-outs and objective, without `run` and stages. test_letters has no special
/// tokens, so ids 1 and 2 are declared special.
std::string stair_yaml();

/// Resolves stair_yaml with overrides.
Config stair_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns the three stages of the paper, of 4 steps each, as the YAML list `stages`. The objective of stage 2 is `stair`
/// until the step set by kill_stair_at().
std::string stair_stages();

/// Kills this process (SIGKILL) in the forward pass of that objective after `step` updates of the stage.
void kill_stair_at(std::int64_t step);

}  // namespace tessera
