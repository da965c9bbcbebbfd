#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the YAML of tiny_yaml, changed to STAIR's read-outs and objective. The YAML sets neither `run` nor `stages`. The tokenizer
/// test_letters has no special tokens, so the YAML declares the ids 1 and 2 special.
std::string stair_yaml();

/// Returns the resolved configuration of stair_yaml with overrides; the run folder is `run`.
Config stair_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns the three stages of the paper, with 4 steps each, as the YAML list `stages`.
std::string stair_stages();

}  // namespace tessera
