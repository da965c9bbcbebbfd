#include <cmath>

#include "src/training/log/input_bound_detector.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr double kLargeShare = 0.2;
constexpr double kShortest = 10;    // minimum length of a window in seconds
constexpr double kSilence = 600;    // minimum seconds between two messages
constexpr double kBusy = 0.75;      // threads that are busy for less than this share of the time count as idle
constexpr double kComputing = 0.6;  // threads that compute for less than this share of their busy time are waiting for files or cores

long percent(double share) {
  return std::lround(100 * share);
}

}  // namespace

std::optional<std::string> InputBoundDetector::note(const DataWindow& window, double now) {
  sum_ = {sum_.seconds + window.seconds, sum_.wait_seconds + window.wait_seconds,
          sum_.work_seconds + window.work_seconds, sum_.cpu_seconds + window.cpu_seconds};
  if (sum_.seconds < kShortest) return std::nullopt;
  std::optional<std::string> line;
  const bool silent = last_said_ && now - *last_said_ < kSilence;
  if (!silent && sum_.wait_seconds > kLargeShare * sum_.seconds) {
    line = diagnosis();
    last_said_ = now;
  }
  sum_ = {};
  return line;
}

std::string InputBoundDetector::diagnosis() const {
  const double busy = sum_.work_seconds / (sum_.seconds * static_cast<double>(threads_));
  const double computing = sum_.work_seconds > 0 ? sum_.cpu_seconds / sum_.work_seconds : 0;
  const std::string what =
      concat("data: training waits for data ", percent(sum_.wait_seconds / sum_.seconds), "% of the time; the ",
             threads_, threads_ == 1 ? " decoding thread is" : " decoding threads are");
  if (busy < kBusy)
    return concat(what, " busy only ", percent(busy),
                  "% of the time, so the bottleneck is between them and the step: raise data.loader.prefetch, "
                  "or check what else runs on the ",
                  cores_, " cores");
  if (computing < kComputing && threads_ < cores_)
    return concat(what, " busy, but only ", percent(computing),
                  "% of that is computing, the rest is waiting for files: raise data.loader.threads (now ", threads_,
                  "; more threads hide a slow disk), or move the data to a faster disk");
  if (threads_ < cores_)
    return concat(what, " decoding without pause: raise data.loader.threads (", cores_,
                  " cores here), or store smaller images");
  return concat(what, " decoding without pause on ", cores_,
                " cores: store smaller images, or give the job more cores");
}

}  // namespace tessera
