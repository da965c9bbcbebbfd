#include "src/data/loading/wait_policy.h"

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

double rounded(double seconds) {
  return seconds < 10 ? std::round(100 * seconds) / 100 : std::round(seconds);
}

}  // namespace

double check_wait(const Patience& patience, std::int64_t ticket, double waited) {
  const bool limited = patience.timeout > 0;
  if (limited && waited >= patience.timeout)
    user_error("data: ", patience.source, ": waited ", rounded(waited), " s for ", patience.describe(ticket),
               ", the timeout: look at this sample, and at the disk, network or command that it is read from");
  double next = patience.warn_after;
  if (waited >= next) {
    log::warning("data: waiting since ", rounded(waited), " s for ", patience.describe(ticket), " of ",
                 patience.source);
    while (next <= waited) next *= 2;
  }
  return limited ? std::min(next, patience.timeout) : next;
}

void warn_of_left_threads(std::int64_t count) {
  log::warning("data: ", count, count == 1 ? " thread hangs" : " threads hang",
               " in a sample and cannot be stopped; going on without");
}

}  // namespace tessera
