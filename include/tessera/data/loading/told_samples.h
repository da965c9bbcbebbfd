#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tessera {

/// Which samples the log has named as left out: passes over the same data that share one name each sample once, and of
/// each source the first few alone. Thread-safe.
class ToldSamples {
 public:
  enum class Tell { no, yes, last };

  /// Whether a sample of the source, named by what is said of it, is to be told of now; `last`: others will not be.
  Tell tell(const std::string& source, const std::string& text);

 private:
  static constexpr std::size_t kMost = 10;
  std::mutex mutex_;
  std::map<std::string, std::set<std::string>> told_;
};

}  // namespace tessera
