#pragma once

#include <array>
#include <csignal>

#include <tessera/distributed/spawn.h>

namespace tessera {

/// While an object of this class exists, the first signal in kSavingSignals is only recorded; a second signal of the same kind ends the
/// program as usual. A SIGHUP that is already ignored (nohup) stays ignored. An object that is created while another one exists has no
/// effect.
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

/// Returns the number of the recorded signal; 0 if there was none.
int interrupted();

}  // namespace tessera
