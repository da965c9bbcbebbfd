#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// How long somebody waits for a result before a line says what for, and before an error does.
struct WaitPolicy {
  double warn_after = 60;  // seconds; said again after twice, four times, ... as long
  double timeout = 0;      // seconds; 0: never
  std::string source;      // whose results they are
  /// What result number `ticket` is, and who is at it: "sample number 7 (thread 2 is reading it)".
  std::function<std::string(std::int64_t ticket)> describe;
};

/// Says how long result number `ticket` has been waited for; returns the seconds after which to look again. Throws
/// UserError after the timeout.
double check_wait(const WaitPolicy& wait_policy, std::int64_t ticket, double waited);

/// Warns that threads are left behind which hang in a read.
void warn_of_left_threads(std::int64_t count);

}  // namespace tessera
