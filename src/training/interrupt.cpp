#include <atomic>

#include <tessera/training/interrupt.h>

namespace tessera {
namespace {

std::atomic<int> noted{0};
bool guarded = false;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait for a lock");

void note(int signal) {
  noted = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() : outer_(!guarded) {
  if (!outer_) return;
  guarded = true;
  noted = 0;
  struct sigaction action {};
  action.sa_handler = note;
  // Reset after the first: whoever presses Ctrl-C twice means it. No restart would break reads; data threads want it.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGUSR1, &action, &old_usr1_);
}

InterruptGuard::~InterruptGuard() {
  if (!outer_) return;
  guarded = false;
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGUSR1, &old_usr1_, nullptr);
}

int interrupted() {
  return noted;
}

}  // namespace tessera
