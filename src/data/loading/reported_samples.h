#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tessera {

/// Remembers which skipped samples the log has reported. Several passes over the same data share one object. The log then reports each
/// sample only once, and only the first few samples of each source. Thread-safe.
class ReportedSamples {
 public:
  enum class Tell { no, yes, last };

  /// Decides whether the log reports a skipped sample of `source`. Tell::last means that the log reports this sample, but no later sample
  /// of `source`. `text` is the message about the sample.
  Tell tell(const std::string& source, const std::string& text);

 private:
  static constexpr std::size_t kMost = 10;
  std::mutex mutex_;
  std::map<std::string, std::set<std::string>> reported_;
};

}  // namespace tessera
