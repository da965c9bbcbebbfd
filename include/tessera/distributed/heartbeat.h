#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Publishes each second that this rank is alive, with its step and phase, and watches the next rank of the ring. When
/// that rank stays silent (a stopped process, a dead machine), the job cannot continue: this rank's main thread waits
/// in a collective that will never complete. So the watcher prints a line that names the lost rank with its host, phase
/// and last step, and ends this process with exit code 1; launchers then end the others. With one rank it does nothing.
class Heartbeat {
 public:
  /// silence: seconds after which a rank counts as lost. Throws JobError if the ranks' store cannot be reached.
  Heartbeat(const ProcessGroup& group, double silence);
  /// Announces that this rank leaves, so that the others do not report it as lost.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Records what this rank does from now on. Cheap. phase: a string literal; only the pointer is kept.
  void enter(const char* phase, std::int64_t step);

  /// For use after a collective has failed: returns one line that says which ranks are lost or behind, by what each
  /// reported last. Takes a few seconds, in which the ranks that are alive report again.
  std::string explain() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null with one rank
};

}  // namespace tessera
