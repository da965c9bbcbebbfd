#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Shards of 48 shapes with summaries, object names and region features; returns their pattern. Samples at odd places
/// have no regions, and in turn no summary or no object names: in the order of the file over two ranks, rank 1's.
std::string write_pyramid_shards(const std::string& folder);

/// Shards of 32 shapes of which each view is missing somewhere and some members are bad; returns their pattern. Skipped
/// for it are the samples bad_0 (the detector's file is damaged), bad_1 and bad_2 (region features 100 wide, .npy and
/// .safetensors), bad_3 (no picture) and bad_4 (no caption).
std::string write_pyramid_shards_with_damage(const std::string& folder);

/// A run of `pyramidclip` with LeFF and regions on such shards, of 6 steps, in the order of the file.
Config pyramid_config(const std::string& run, const std::string& shards,
                      const std::vector<std::string>& overrides = {});

/// Overrides that give the run the objective of kill_pyramid_at(), which is `pyramidclip` otherwise.
std::vector<std::string> killed_pyramid();

/// This process is killed (SIGKILL) in the forward pass of that objective after so many updates.
void kill_pyramid_at(std::int64_t step);

}  // namespace tessera
