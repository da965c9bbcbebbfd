#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// Mixed into an IndexedSource that stores its samples in groups and reads a group as a whole (Parquet's row groups). A fully
/// random order would read a whole group for every sample, so training draws its samples from a few open groups.
class GroupedSource {
 public:
  virtual ~GroupedSource() = default;
  /// The first sample of each group, ascending, followed by the number of all samples; empty: there are no groups.
  virtual std::vector<std::int64_t> group_starts() const = 0;
  /// How many groups are open at a time.
  virtual std::int64_t open_groups() const = 0;
};

}  // namespace tessera
