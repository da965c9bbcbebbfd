#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// Times measured over a period of training, in seconds.
struct DataWindow {
  double seconds = 0;       // wall-clock time
  double wait_seconds = 0;  // the part of `seconds` spent waiting for data
  double work_seconds = 0;  // time spent reading and decoding samples, summed over all decoding threads
  double cpu_seconds = 0;   // the CPU time within work_seconds
};

/// Explains why training waits for data, if it waits for much of the time. Limits the number of messages.
class InputBoundDetector {
 public:
  /// `threads` is data.loader.threads; `cores` is the machine's number of cores.
  InputBoundDetector(std::int64_t threads, std::int64_t cores) : threads_(threads), cores_(cores) {}

  /// Adds a window that ended at `now` (seconds of any clock). Returns a message if, over at least ten seconds, training waited for data
  /// for more than a fifth of the time. Returns at most one message in ten minutes.
  std::optional<std::string> note(const DataWindow& window, double now);

 private:
  std::string diagnosis() const;

  std::int64_t threads_, cores_;
  DataWindow sum_;
  std::optional<double> last_said_;
};

}  // namespace tessera
