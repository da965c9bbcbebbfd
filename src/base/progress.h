#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// Shows the progress of a long job. On a terminal it updates one line in place; otherwise, as in a log file, it writes a line every
/// half minute.
class Progress {
 public:
  struct Output {
    bool terminal = false;
    // on a terminal, writes `text` as it is; otherwise, writes it as one line and adds the line end
    std::function<void(const std::string& text)> write;
    std::function<double()> seconds;                     // a monotonic clock
  };
  /// Returns an output that writes to standard error if that is a terminal, and to the log otherwise.
  static Output standard_error();

  /// `unit` names the items that are counted, such as "images".
  Progress(std::string name, std::string unit, Output output = standard_error());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `begun_at` says how many of the `done` items an earlier run of the program had finished; the rate does not count these.
  void show(std::int64_t done, std::int64_t total, std::int64_t begun_at = 0);

 private:
  std::string name_, unit_;
  Output output_;
  double start_, shown_;
  bool moving_ = false;
};

/// Returns a line such as "zero_shot  12,000/50,000 images  400 images/s  ETA 1m35s". `seconds` is the time since the start.
std::string progress_line(const std::string& name, const std::string& unit, std::int64_t done, std::int64_t total,
                          std::int64_t begun_at, double seconds);

}  // namespace tessera
