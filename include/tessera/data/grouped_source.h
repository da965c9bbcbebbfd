#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// Mixed into an IndexedSource whose samples lie in groups, each of which is read as a whole (the row groups of Parquet). An
/// order that jumped to any sample would read a group for each of them, so training draws its samples from a few open groups.
class GroupedSource {
 public:
  virtual ~GroupedSource() = default;
  /// The first sample of each group, rising, and then the number of all samples; empty: there are no groups.
  virtual std::vector<std::int64_t> group_starts() const = 0;
  /// How many groups are open at a time.
  virtual std::int64_t open_groups() const = 0;
};

}  // namespace tessera
