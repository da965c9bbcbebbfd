#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// A second base class for an IndexedSource that stores its samples in groups and reads each group as a whole (Parquet's row groups). A
/// fully random order would read a whole group for every sample, so training draws its samples from a few open groups at a time.
class GroupedSource {
 public:
  virtual ~GroupedSource() = default;
  /// Returns the index of each group's first sample, ascending, followed by the total number of samples. Empty if there are no
  /// groups.
  virtual std::vector<std::int64_t> group_starts() const = 0;
  /// Returns the number of groups that are open at the same time.
  virtual std::int64_t open_groups() const = 0;
};

}  // namespace tessera
