#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Writes shards of 48 shapes with summaries, object names and region features. Returns their path pattern. Samples at odd
/// positions have no regions, and alternately no summary or no object names. In file order over two ranks, these are the
/// samples of rank 1.
std::string write_pyramid_shards(const std::string& folder);

/// Writes shards of 32 shapes in which each view is missing somewhere and some members are bad. Returns their path pattern.
/// Training skips the samples bad_0 (the detector file is damaged), bad_1 and bad_2 (region features of width 100, in .npy
/// and .safetensors), bad_3 (no image) and bad_4 (no caption).
std::string write_pyramid_shards_with_damage(const std::string& folder);

/// Returns a run of `pyramidclip` with LeFF and regions on such shards, of 6 steps, in file order.
Config pyramid_config(const std::string& run, const std::string& shards,
                      const std::vector<std::string>& overrides = {});

/// Returns overrides that select an objective that is `pyramidclip` until the step set by kill_pyramid_at().
std::vector<std::string> killed_pyramid();

/// Kills this process (SIGKILL) in the forward pass of that objective after `step` updates.
void kill_pyramid_at(std::int64_t step);

}  // namespace tessera
