#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Registers the objective `test_any_views`, which uses images of two sizes, region features, captions, summaries that samples
/// may lack, and a teacher. The weights of its terms change with the step. It covers views that future objectives may need.
void register_any_views();

/// The number of updates after which the forward pass of test_any_views kills this process (SIGKILL); -1: never.
std::int64_t& killed_at();

/// Writes shards of shapes in which every second sample lacks a summary and every third has no regions. Returns the shards'
/// path pattern.
std::string write_shards_with_holes(const std::string& folder, std::int64_t samples);

/// Returns the configuration of a run that trains with test_any_views for 6 steps on shards of write_shards_with_holes().
Config any_views_config(const std::string& run, const std::string& shards,
                        const std::vector<std::string>& overrides = {});

}  // namespace tessera
