#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// How a stretch of training spent its time, in seconds.
struct DataWindow {
  double seconds = 0;       // wall-clock time
  double wait_seconds = 0;  // the part of it spent waiting for data
  double work_seconds = 0;  // time that all decoding threads together spent reading and decoding samples
  double cpu_seconds = 0;   // the CPU time in work_seconds
};

/// Explains why training waits for data, if it waits much, with a limited number of messages.
class InputBoundDetector {
 public:
  /// threads: data.loader.threads; cores: the machine's number of cores.
  InputBoundDetector(std::int64_t threads, std::int64_t cores) : threads_(threads), cores_(cores) {}

  /// Adds a window that ended at `now` (seconds of any clock). Returns a message if more than a fifth of at least ten seconds was
  /// spent waiting, at most every ten minutes.
  std::optional<std::string> note(const DataWindow& window, double now);

 private:
  std::string diagnosis() const;

  std::int64_t threads_, cores_;
  DataWindow sum_;
  std::optional<double> last_said_;
};

}  // namespace tessera
