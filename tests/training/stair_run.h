#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// YAML of tiny_yaml's run with STAIR's read-outs and objective, without its `run` and its stages. test_letters has no
/// special tokens; the objective leaves out 1 and 2.
std::string stair_yaml();

/// stair_yaml with overrides, resolved.
Config stair_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// The three stages of the paper, of 4 steps each, as the list `stages`. Stage 2 has the objective that
/// kill_stair_at() speaks of, which is `stair` otherwise.
std::string stair_stages();

/// This process is killed (SIGKILL) in the forward pass of that objective after so many updates of the stage.
void kill_stair_at(std::int64_t step);

}  // namespace tessera
