#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Adds the objective `test_any_views`: pictures at two sizes, region features, a caption, a summary that samples may
/// lack, and a teacher, with weights that follow the step. It stands for what systems to come will ask of the house.
void register_any_views();

/// This process is killed (SIGKILL) in the forward pass of test_any_views after so many updates.
void kill_any_views_at(std::int64_t step);

/// Shards of shapes in which every second sample lacks a summary and every third has no regions; returns their pattern.
std::string write_shards_with_holes(const std::string& folder, std::int64_t samples);

/// A run of test_any_views on such shards, of 6 steps.
Config any_views_config(const std::string& run, const std::string& shards,
                        const std::vector<std::string>& overrides = {});

}  // namespace tessera
