#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace tessera {

/// Counts samples that are left out, and tells of the first few, each once however often it comes.
class SkipLog {
 public:
  explicit SkipLog(std::string source) : source_(std::move(source)) {}

  void note(const std::string& reason, const std::string& text);
  std::int64_t total() const { return total_; }
  const std::map<std::string, std::int64_t>& counts() const { return counts_; }
  const std::string& first() const { return first_; }

 private:
  std::string source_;
  std::map<std::string, std::int64_t> counts_;
  std::int64_t total_ = 0;
  std::string first_;
  std::set<std::string> told_;
};

}  // namespace tessera
