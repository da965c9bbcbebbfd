#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// What a stretch of training spent, in seconds.
struct DataWindow {
  double seconds = 0;       // by the clock
  double wait_seconds = 0;  // of them, standing still for data
  double work_seconds = 0;  // of the decoding threads, all together: reading and decoding samples
  double cpu_seconds = 0;   // of these, computing
};

/// Says why training waits for data, when it does so much, and not too often.
class InputBoundDetector {
 public:
  /// threads: data.loader.threads; cores: of the machine.
  InputBoundDetector(std::int64_t threads, std::int64_t cores) : threads_(threads), cores_(cores) {}

  /// Adds a window that ended at `now` (seconds of any clock). One line when more than a fifth of at least ten seconds
  /// went into waiting, at most every ten minutes.
  std::optional<std::string> note(const DataWindow& window, double now);

 private:
  std::string diagnosis() const;

  std::int64_t threads_, cores_;
  DataWindow sum_;
  std::optional<double> last_said_;
};

}  // namespace tessera
