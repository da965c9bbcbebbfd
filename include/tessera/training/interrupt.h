#pragma once

#include <array>
#include <csignal>

#include <tessera/distributed/spawn.h>

namespace tessera {

/// While it lives, kSavingSignals are only noted, but for a SIGHUP that is ignored already (nohup); a second one of the same
/// kind ends the program as usual. A guard inside another one's life changes nothing.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  bool outer_ = false;
  std::array<struct sigaction, kSavingSignals.size()> old_{};
};

/// The signal that was noted, 0 = none.
int interrupted();

}  // namespace tessera
