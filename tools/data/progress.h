#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::tools {

/// Prints the progress of a long job on stderr: a bar with rate and time left on a terminal, else a plain line every ten
/// seconds.
class Progress {
 public:
  Progress(std::string what, std::int64_t total, std::int64_t begun_at = 0);
  /// Ends the line of the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::int64_t done);
  double seconds() const;

 private:
  std::string line(std::int64_t done) const;

  const std::string what_;  // "samples"
  const std::int64_t total_, begun_at_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double last_ = 0;
  bool drawn_ = false;
};

}  // namespace tessera::tools
