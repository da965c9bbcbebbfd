#pragma once

#include <array>
#include <csignal>

#include <tessera/distributed/spawn.h>

namespace tessera {

/// During its lifetime the first signal of kSavingSignals is only recorded; a second one of the same kind ends the program as usual.
/// A SIGHUP that is already ignored (nohup) stays ignored. A guard nested inside another one has no effect.
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

/// Returns the recorded signal, 0 = none.
int interrupted();

}  // namespace tessera
