#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Writes shards of 48 shapes with summaries, object names and region features. Returns the shards' path pattern. Samples at odd positions
/// have no regions. Half of these samples also lack their summary, and the other half their object names. If two ranks read the shards in
/// file order, rank 1 has exactly the samples at odd positions.
std::string write_pyramid_shards(const std::string& folder);

/// Writes shards of 32 shapes in which each view is missing somewhere and some members are bad. Returns the shards' path pattern. Training
/// skips five samples: bad_0 has a damaged detector file, bad_1 and bad_2 have region features of width 100 (in .npy and .safetensors),
/// bad_3 has no image, and bad_4 has no caption.
std::string write_pyramid_shards_with_damage(const std::string& folder);

/// Returns the configuration of a run of `pyramidclip` with LeFF and regions. `shards` is a path pattern, such as the functions above
/// return. The run takes 6 steps and reads the shards in file order.
Config pyramid_config(const std::string& run, const std::string& shards,
                      const std::vector<std::string>& overrides = {});

}  // namespace tessera
