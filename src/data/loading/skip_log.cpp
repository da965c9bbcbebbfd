#include "src/data/loading/skip_log.h"

#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {

constexpr std::size_t kTold = 10;

std::string describe_counts(const std::map<std::string, std::int64_t>& counts) {
  std::string out;
  for (const auto& [reason, count] : counts) out += concat(out.empty() ? "" : ", ", count, " ", reason);
  return out;
}

void SkipLog::note(const std::string& reason, const std::string& text) {
  ++counts_[reason];
  ++total_;
  if (first_.empty()) first_ = text;
  if (told_.size() >= kTold || !told_.insert(text).second) return;
  log::warning("skipped: ", text, " (", reason, ")");
  if (told_.size() == kTold) log::warning(source_, ": further skipped samples are only counted");
}

}  // namespace tessera
