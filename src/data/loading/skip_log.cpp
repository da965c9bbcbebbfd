#include "src/data/loading/skip_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

using SkipJson = nlohmann::ordered_json;

std::string skip_line(const SkipJson& json) {
  return dump_utf8(json) + "\n";
}

}  // namespace


ReportedSamples::Tell ReportedSamples::tell(const std::string& source, const std::string& text) {
  const std::scoped_lock lock(mutex_);
  std::set<std::string>& reported = reported_[source];
  if (reported.size() >= kMost || !reported.insert(text).second) return Tell::no;
  return reported.size() == kMost ? Tell::last : Tell::yes;
}

void SkipLog::note(const std::string& reason, const std::string& text) {
  ++counts_[reason];
  ++total_;
  if (first_.empty()) first_ = text;
  const ReportedSamples::Tell tell = reported_->tell(source_, text);
  if (tell == ReportedSamples::Tell::no) return;
  log::warning("skipped: ", text, " (", reason, ")");
  if (tell == ReportedSamples::Tell::last) log::warning(source_, ": further skipped samples are only counted");
}

void SkipList::note(std::int64_t epoch, const std::string& key, const std::string& reason, const std::string& text) {
  if (path_.empty() || most_ <= 0) return;
  if (!opened_) open();
  if (full_) return;
  // skip_line() replaces bytes that are not UTF-8. is_new() needs the key as the file has it, so the key is read back from `written`.
  SkipJson line{{"epoch", epoch}, {"key", key}, {"reason", reason}, {"text", text}};
  const std::string written = skip_line(line);
  line = SkipJson::parse(written);
  if (!is_new(line["key"].get<std::string>(), reason)) return;
  write(written);
  if (static_cast<std::int64_t>(listed_.size()) < most_) return;
  full_ = true;
  write(skip_line({{"note", concat("further samples are only counted (data.loader.skipped_list ", most_, ")")}}));
}

// Reads the file of a resumed run, so that samples listed there are not listed again.
void SkipList::open() {
  opened_ = true;
  constexpr std::int64_t few = 1 << 20;
  listed_.reserve(static_cast<std::size_t>(std::min(most_, few)));
  bool cut = false;
  std::ifstream before(path_);
  for (std::string line; std::getline(before, line);) {
    cut = before.eof();
    const SkipJson json = SkipJson::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    if (json.contains("note")) full_ = true;
    if (json.contains("key") && json["key"].is_string() && json.contains("reason") && json["reason"].is_string())
      is_new(json["key"].get<std::string>(), json["reason"].get<std::string>());
  }
  file_.open(path_, std::ios::app);
  if (!file_)
    log::warning(path_, ": cannot be written: ", std::strerror(errno), "; skipped samples are not listed");
  else if (cut)
    file_ << "\n";
}

bool SkipList::is_new(const std::string& key, const std::string& reason) {
  const std::uint64_t print = fingerprint(key, fingerprint(reason));
  const auto place = std::lower_bound(listed_.begin(), listed_.end(), print);
  if (place != listed_.end() && *place == print) return false;
  listed_.insert(place, print);
  return true;
}

void SkipList::write(const std::string& line) {
  if (file_) file_ << line << std::flush;
}

}  // namespace tessera
