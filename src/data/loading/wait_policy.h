#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// How long to wait for a result before logging a warning, and before failing.
struct WaitPolicy {
  double warn_after = 60;  // in seconds; if the wait goes on, the warning is repeated at 2, 4, 8, ... times this value
  double timeout = 0;      // seconds until check_wait() throws UserError; 0: no limit
  std::string source;      // description of the source of the results
  /// Describes result number `ticket` and its progress: "sample number 7 (thread 2 is reading it)".
  std::function<std::string(std::int64_t ticket)> describe;
  /// A count that grows while work that may take longer than the timeout moves on. If it has grown during a wait, the timeout starts
  /// again. Null: no such work.
  std::function<std::int64_t()> progress;
};

/// Logs a warning if result number `ticket` is overdue after `waited` seconds. Returns the value of `waited` at which to call this
/// function again. Throws UserError after the timeout.
double check_wait(const WaitPolicy& wait_policy, std::int64_t ticket, double waited);

/// Warns that `count` threads hang in a read and are left running.
void warn_of_left_threads(std::int64_t count);

}  // namespace tessera
