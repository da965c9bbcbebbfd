#include "src/data/loading/ordered_workers.h"

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

constexpr double kLongestWait = 1e9;  // seconds; the clock overflows at nine times as much

double rounded(double seconds) {
  return seconds < 10 ? std::round(100 * seconds) / 100 : std::round(seconds);
}

}  // namespace

double check_wait(const WaitPolicy& wait_policy, std::int64_t ticket, double waited) {
  const bool limited = wait_policy.timeout > 0;
  if (limited && waited >= wait_policy.timeout)
    user_error("data: ", wait_policy.source, ": waited ", rounded(waited), " s for ", wait_policy.describe(ticket),
               ", the timeout: look at this sample, and at the disk, network or command that it is read from");
  double next = wait_policy.warn_after;
  if (waited >= next) {
    log::warning("data: waited ", rounded(waited), " s for ", wait_policy.describe(ticket), " of ",
                 wait_policy.source);
    while (next <= waited) next *= 2;
  }
  return std::min({next, limited ? wait_policy.timeout : next, kLongestWait});
}

void warn_of_left_threads(std::int64_t count) {
  log::warning("data: ", count, count == 1 ? " thread hangs" : " threads hang",
               " in a sample and cannot be stopped; continuing anyway");
}

}  // namespace tessera
