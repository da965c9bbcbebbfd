#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// Shows the progress of a task: on a terminal one line that is updated in place, otherwise (in a log file) a line every half
/// minute.
class Progress {
 public:
  struct Output {
    bool terminal = false;
    std::function<void(const std::string& text)> write;  // the raw text on a terminal, otherwise a line without its end
    std::function<double()> seconds;                     // a monotonic clock
  };
  /// Writes to standard error, directly on a terminal and through the log otherwise.
  static Output standard_error();

  Progress(std::string name, Output output);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::int64_t done, std::int64_t total);

 private:
  std::string name_;
  Output output_;
  double start_, shown_;
  bool moving_ = false;
};

/// Returns "zero_shot  12,000/50,000 images  400 images/s  ETA 1m35s"; `seconds` have passed since the start.
std::string progress_line(const std::string& name, std::int64_t done, std::int64_t total, double seconds);

}  // namespace tessera
