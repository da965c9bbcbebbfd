#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Writes shards of 48 shapes with summaries, object names and region features. Returns the shards' path pattern. Samples at odd
/// positions have no regions, and every other one of them lacks its summary, the others their object names. If two ranks read
/// the shards in file order, these are the samples of rank 1.
std::string write_pyramid_shards(const std::string& folder);

/// Writes shards of 32 shapes in which each view is missing somewhere and some members are bad. Returns the shards' path pattern.
/// Training skips bad_0, whose detector file is damaged, bad_1 and bad_2, whose region features in .npy and .safetensors have
/// width 100, bad_3, which has no image, and bad_4, which has no caption.
std::string write_pyramid_shards_with_damage(const std::string& folder);

/// Returns a run of `pyramidclip` with LeFF and regions. It trains for 6 steps on such shards, in file order.
Config pyramid_config(const std::string& run, const std::string& shards,
                      const std::vector<std::string>& overrides = {});

}  // namespace tessera
