#include "src/data/loading/skip_log.h"

#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {

constexpr std::size_t kTold = 10;

void SkipLog::note(const std::string& reason, const std::string& text) {
  ++counts_[reason];
  ++total_;
  if (first_.empty()) first_ = text;
  if (told_.size() >= kTold || !told_.insert(text).second) return;
  log::warning("skipped: ", text, " (", reason, ")");
  if (told_.size() == kTold) log::warning(source_, ": further skipped samples are only counted");
}

}  // namespace tessera
