#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Tells the other ranks each second that this one lives, and in what phase of which step it is; and watches the next
/// rank of the ring. When that one stays silent (a stopped process, a dead machine) the job cannot go on: this rank
/// prints a line that names the lost one with its host, phase and last step, and ends its process with exit code 1, for
/// its main thread stands in a collective that nobody will complete. Launchers then end the others. One rank: nothing.
class Heartbeat {
 public:
  /// silence: seconds after which a rank counts as lost. Throws JobError when the ranks' store cannot be reached.
  Heartbeat(const ProcessGroup& group, double silence);
  /// Says goodbye: whoever has left in order is not missed.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// What this rank does from now on. Cheap. phase: a text that stays (a literal).
  void enter(const char* phase, std::int64_t step);

  /// After a collective has failed: one line on which ranks are lost or behind, by what all have told last. Takes a few
  /// seconds, in which the living show that they live.
  std::string explain() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null: one rank
};

}  // namespace tessera
