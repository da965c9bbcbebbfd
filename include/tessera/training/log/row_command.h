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

/// A user's shell command that reads a run's rows from its standard input, a line each (log.command). It runs beside the
/// training, which never waits for it: rows that find the queue full are dropped and counted, and one that ends early is
/// told of and missed no more. It is in a process group of its own, so Ctrl-C ends the run and not the command.
class RowCommand {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  /// Starts it. most_waiting: rows that may wait to be written. Throws UserError when there is no shell.
  RowCommand(std::string command, const Variables& environment, std::size_t most_waiting = 10'000);
  /// Closes it, and waits for it no longer.
  ~RowCommand();
  RowCommand(const RowCommand&) = delete;
  RowCommand& operator=(const RowCommand&) = delete;

  /// Hands over a row, without its line end.
  void send(std::string row);
  /// What the log should say: that the command has ended. Once.
  std::optional<std::string> news();
  /// After the last row: the rows that wait, then the end of its input; returns when the command has ended, or after
  /// `patience`, when it is left to itself. What the log should say of it.
  std::vector<std::string> close(std::chrono::milliseconds patience = std::chrono::seconds(10));

 private:
  using Clock = std::chrono::steady_clock;

  void write_rows();
  bool write_row(const std::string& row);
  bool out_of_patience();
  /// Whether it has ended; its exit status is then in status_.
  bool ended();
  std::string ending();

  const std::string command_;
  const std::size_t most_waiting_;
  pid_t process_ = 0;
  int input_ = -1;
  std::optional<int> status_;
  bool told_ = false;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::int64_t written_ = 0, dropped_ = 0;
  bool broken_ = false;                        // it reads no more
  std::optional<Clock::time_point> deadline_;  // set: no more rows come
  std::thread writer_;
};

}  // namespace tessera
