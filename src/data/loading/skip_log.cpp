#include "src/data/loading/skip_log.h"
#include "src/data/loading/told_samples.h"

#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {

ToldSamples::Tell ToldSamples::tell(const std::string& source, const std::string& text) {
  const std::scoped_lock lock(mutex_);
  std::set<std::string>& told = told_[source];
  if (told.size() >= kMost || !told.insert(text).second) return Tell::no;
  return told.size() == kMost ? Tell::last : Tell::yes;
}

void SkipLog::note(const std::string& reason, const std::string& text) {
  ++counts_[reason];
  ++total_;
  if (first_.empty()) first_ = text;
  const ToldSamples::Tell tell = told_->tell(source_, text);
  if (tell == ToldSamples::Tell::no) return;
  log::warning("skipped: ", text, " (", reason, ")");
  if (tell == ToldSamples::Tell::last) log::warning(source_, ": further skipped samples are only counted");
}

}  // namespace tessera
