#include <array>
#include <atomic>

#include "src/training/interrupt.h"

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
  // SA_RESETHAND makes a second Ctrl-C end the program. Without SA_RESTART, reads in the data threads would fail.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSavingSignals.size(); ++i) {
    sigaction(kSavingSignals[i], nullptr, &old_[i]);
    if (is_heeded(kSavingSignals[i])) sigaction(kSavingSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (!outer_) return;
  guarded = false;
  for (std::size_t i = 0; i < kSavingSignals.size(); ++i) sigaction(kSavingSignals[i], &old_[i], nullptr);
}

int interrupted() {
  return noted;
}

}  // namespace tessera
