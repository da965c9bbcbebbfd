#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Registers the objective `test_any_views`, which uses images at two sizes, region features, a caption, a summary that
/// samples may lack, and a teacher, with weights that follow the step. It covers views that future objectives may ask for.
void register_any_views();

/// Kills this process (SIGKILL) in the forward pass of test_any_views after `step` updates.
void kill_any_views_at(std::int64_t step);

/// Writes shards of shapes in which every second sample lacks a summary and every third has no regions. Returns their
/// path pattern.
std::string write_shards_with_holes(const std::string& folder, std::int64_t samples);

/// Returns the configuration of a run of test_any_views on such shards, of 6 steps.
Config any_views_config(const std::string& run, const std::string& shards,
                        const std::vector<std::string>& overrides = {});

}  // namespace tessera
