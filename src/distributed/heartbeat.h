#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Publishes every second that this rank is alive, with its step and phase, and watches the next rank of the ring. When the next rank stays
/// silent (a stopped process, a dead machine), the job cannot continue: this rank's main thread waits in a collective that will never
/// complete. A watcher thread then prints a line that names the lost rank with its host, phase and last step, and ends this process with
/// exit code 1; launchers then end the others. In a job of one rank, a Heartbeat does nothing.
class Heartbeat {
 public:
  /// A rank counts as lost after `silence` seconds without a report. Throws JobError if the ranks' store cannot be
  /// reached.
  Heartbeat(const ProcessGroup& group, double silence);
  /// Announces that this rank is leaving, so that the others do not report it as lost.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Records which phase and step this rank enters. The call is cheap. `phase` must be a string literal, because only the pointer is kept.
  void enter(const char* phase, std::int64_t step);

  /// Returns one line that says which ranks are lost or behind, based on each rank's last report. Use it after a collective has failed. It
  /// takes a few seconds, so that the ranks that are alive can report again. One of the ranks that call it reads all reports, and all of
  /// them return what that rank has found, so the number of requests per rank does not depend on the number of ranks.
  std::string explain() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null with one rank
};

}  // namespace tessera
