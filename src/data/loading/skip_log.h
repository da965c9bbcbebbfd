#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "src/data/loading/told_samples.h"

namespace tessera {

/// Counts skipped samples and logs the first few, each only once.
class SkipLog {
 public:
  /// `told` records what other passes over the data have logged already. If it is null, this log keeps its own record.
  explicit SkipLog(std::string source, std::shared_ptr<ToldSamples> told = nullptr)
      : source_(std::move(source)), told_(told ? std::move(told) : std::make_shared<ToldSamples>()) {}

  void note(const std::string& reason, const std::string& text);
  std::int64_t total() const { return total_; }
  const std::map<std::string, std::int64_t>& counts() const { return counts_; }
  const std::string& first() const { return first_; }

 private:
  std::string source_;
  std::map<std::string, std::int64_t> counts_;
  std::int64_t total_ = 0;
  std::string first_;
  std::shared_ptr<ToldSamples> told_;
};

}  // namespace tessera
