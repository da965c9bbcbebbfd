#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/base/error.h>

namespace tessera {

/// What a message says of more bad samples than are allowed, and the ways out: "more than max_bad_share 0.1 allows
/// (--max-bad-share 0.4 allows more, tessera-data inspect counts all of them)". `setting` is what goes before the
/// share where the user sets it ("--max-bad-share ").
inline std::string describe_bad_share(double allowed, std::int64_t bad, std::int64_t seen, const std::string& setting) {
  const double share = static_cast<double>(bad) / static_cast<double>(seen);
  // The next tenth above the share, with a fifth of it for what is yet to come.
  const double enough = std::min(1.0, (std::floor(12 * share) + 1) / 10);
  const std::string way_out = bad < seen ? concat(setting, enough, " allows more, ") : "";
  return concat("more than max_bad_share ", allowed, " allows (", way_out, "tessera-data inspect counts all of them)");
}

}  // namespace tessera
