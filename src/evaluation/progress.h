#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// How far a task has come: on a terminal one line that moves, elsewhere a line every half minute, for a log file.
class Progress {
 public:
  struct Output {
    bool terminal = false;
    std::function<void(const std::string& text)> write;  // as it stands on the terminal; without line end elsewhere
    std::function<double()> seconds;                     // of a clock that only rises
  };
  /// Standard error and its log.
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

/// "zero_shot  12,000/50,000 images  400 images/s  ETA 1m35s", after so many seconds.
std::string progress_line(const std::string& name, std::int64_t done, std::int64_t total, double seconds);

}  // namespace tessera
