#pragma once

#include <csignal>

namespace tessera {

/// While it lives, SIGINT, SIGTERM and SIGUSR1 are only noted; a second one of the same kind ends the program as usual.
/// A guard inside another one's life changes nothing.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  bool outer_ = false;
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
  struct sigaction old_usr1_ {};
};

/// The signal that was noted, 0 = none.
int interrupted();

}  // namespace tessera
