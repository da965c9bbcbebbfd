#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

namespace tessera {

/// A user's shell command that reads a run's rows from its standard input, one per line (log.command). Training never waits for it:
/// if the queue is full, rows are dropped and counted; if the command ends early, the log reports it and training continues without
/// the command. The command has its own process group, so Ctrl-C ends only the run.
class RowCommand {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  /// Starts the command. `most_waiting` is the maximum number of queued rows. Throws UserError if there is no shell.
  RowCommand(std::string command, const Variables& environment, std::size_t most_waiting = 10'000);
  /// Closes the command's input without waiting for the command to end.
  ~RowCommand();
  RowCommand(const RowCommand&) = delete;
  RowCommand& operator=(const RowCommand&) = delete;

  /// Queues a row, given without its line end.
  void send(std::string row);
  /// If the command has ended, returns a line for the log, but only once.
  std::optional<std::string> news();
  /// Must be called after the last row. Sends the queued rows, closes the command's input, and waits at most `patience` for the command to
  /// end; a command that takes longer continues to run on its own. Returns lines for the log.
  std::vector<std::string> close(std::chrono::milliseconds patience = std::chrono::seconds(10));

 private:
  using Clock = std::chrono::steady_clock;

  void write_rows();
  bool write_row(const std::string& row);
  bool out_of_patience();
  /// Returns true if the command has ended; its exit status is then in status_.
  bool ended();
  std::string ending();

  const std::string command_;
  const std::size_t most_waiting_;
  pid_t process_ = 0;
  int input_ = -1;
  std::optional<int> status_;
  bool told_ = false;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::int64_t written_ = 0, dropped_ = 0;
  bool broken_ = false;                        // the command has stopped reading
  std::optional<Clock::time_point> deadline_;  // when close() stops waiting; nullopt before close()
  std::thread writer_;
};

}  // namespace tessera
