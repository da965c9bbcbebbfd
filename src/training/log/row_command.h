#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace tessera {

/// A user's shell command that reads a run's rows from its standard input, one per line (log.command). Training never waits for it: what
/// does not fit into the pipe is queued and written with the next row, and if the queue is full, rows are dropped and counted. If the
/// command ends early, the log reports it and training continues without the command. The command has its own process group, so Ctrl-C
/// ends only the run.
class RowCommand {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  /// Starts the command with `environment` added to this process's environment. `most_waiting` is the maximum number of queued rows.
  /// Throws UserError if there is no shell.
  RowCommand(std::string command, const Variables& environment, std::size_t most_waiting = 10'000);
  /// Closes the command's input without waiting for the command to end.
  ~RowCommand() { close(std::chrono::milliseconds(0)); }
  RowCommand(const RowCommand&) = delete;
  RowCommand& operator=(const RowCommand&) = delete;

  /// Sends or queues a row, given without its line end.
  void send(const std::string& row);
  /// If the command has ended, returns a line for the log, but only once.
  std::optional<std::string> news();
  /// Must be called after the last row. Sends the queued rows, closes the command's input, and waits at most `patience` for the command to
  /// end; a command that takes longer continues to run on its own. Returns lines for the log.
  std::vector<std::string> close(std::chrono::milliseconds patience = std::chrono::seconds(10));

 private:
  /// Writes as much as the pipe can take.
  void write_waiting();
  /// Returns true if the command has ended; its exit status is then in status_.
  bool ended();
  std::string ending() const;

  const std::string command_;
  const std::size_t most_waiting_;
  pid_t process_ = 0;
  int input_ = -1;
  std::optional<int> status_;
  bool reported_ = false, broken_ = false;  // broken_: the command has stopped reading
  std::deque<std::string> waiting_;     // what is left to write of each row
  std::int64_t written_ = 0, dropped_ = 0;
};

}  // namespace tessera
