#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/base/error.h>

namespace tessera {

/// Returns the part of an error message that says how to proceed when there are too many bad samples: "more than
/// max_bad_share 0.1 allows (--max-bad-share 0.4 allows more, tessera-data inspect counts all of them)". `setting` is how the
/// user sets the share ("--max-bad-share ").
inline std::string describe_bad_share(double allowed, std::int64_t bad, std::int64_t seen, const std::string& setting) {
  const double share = static_cast<double>(bad) / static_cast<double>(seen);
  // The smallest multiple of 0.1 that is above 1.2 times the share. This leaves room for bad samples still to come.
  const double enough = std::min(1.0, (std::floor(12 * share) + 1) / 10);
  const std::string way_out = bad < seen ? concat(setting, enough, " allows more, ") : "";
  return concat("more than max_bad_share ", allowed, " allows (", way_out, "tessera-data inspect counts all of them)");
}

}  // namespace tessera
