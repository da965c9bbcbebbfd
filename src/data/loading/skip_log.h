#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/loading/reported_samples.h"
#include <tessera/base/error.h>

namespace tessera {

/// Returns the part of an error message that says how to proceed when there are too many bad samples: "more than
/// max_bad_share 0.1 allows (--max-bad-share 0.4 allows more, tessera-data inspect counts all of them)". `setting` is how the
/// user sets the share ("--max-bad-share ").
inline std::string describe_bad_share(double allowed, std::int64_t bad, std::int64_t seen, const std::string& setting) {
  const double share = static_cast<double>(bad) / static_cast<double>(seen);
  // The smallest multiple of 0.1 that is above 1.2 times the share. This leaves room for bad samples still to come.
  const double enough = std::min(1.0, (std::floor(12 * share) + 1) / 10);
  const std::string way_out = bad < seen ? concat(setting, enough, " allows more, ") : "";
  return concat("more than max_bad_share ", allowed, " allows (", way_out, "tessera-data inspect counts all of them)");
}

/// Counts skipped samples and logs the first few, each only once.
class SkipLog {
 public:
  /// `reported` records what other passes over the data have logged already. If it is null, this log keeps its own record.
  explicit SkipLog(std::string source, std::shared_ptr<ReportedSamples> reported = nullptr)
      : source_(std::move(source)), reported_(reported ? std::move(reported) : std::make_shared<ReportedSamples>()) {}

  void note(const std::string& reason, const std::string& text);
  std::int64_t total() const { return total_; }
  const std::map<std::string, std::int64_t>& counts() const { return counts_; }
  const std::string& first() const { return first_; }

 private:
  std::string source_;
  std::map<std::string, std::int64_t> counts_;
  std::int64_t total_ = 0;
  std::string first_;
  std::shared_ptr<ReportedSamples> reported_;
};

/// Writes a run's list of skipped samples, one JSON object per line: {"epoch", "key", "reason", "text"}. A sample is listed once for each
/// reason, no matter how often it is skipped; a resumed run appends to the file. After `most` lines, a final line states that further
/// samples are only counted. The file is created with its first line. If it cannot be written, a warning is logged once and the run
/// continues.
class SkipList {
 public:
  SkipList() = default;  // lists nothing
  SkipList(std::string path, std::int64_t most) : path_(std::move(path)), most_(most) {}

  void note(std::int64_t epoch, const std::string& key, const std::string& reason, const std::string& text);

 private:
  void open();
  void write(const std::string& line);
  bool is_new(const std::string& key, const std::string& reason);

  std::string path_;
  std::int64_t most_ = 0;
  bool opened_ = false;
  // Sorted fingerprints of keys with their reasons. They are in one block of memory, because many small long-lived allocations
  // between large freed ones would fragment the heap.
  std::vector<std::uint64_t> listed_;
  bool full_ = false;
  std::ofstream file_;
};

}  // namespace tessera
