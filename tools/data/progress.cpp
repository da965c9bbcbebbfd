#include "tools/data/progress.h"

#include <iostream>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

constexpr double kDrawEvery = 0.2, kPrintEvery = 10;  // seconds
constexpr std::size_t kBar = 30;

}  // namespace

Progress::Progress(std::string what, std::int64_t total, std::int64_t begun_at)
    : what_(std::move(what)), total_(total), begun_at_(begun_at), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) std::cerr << "\n";
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::show(std::int64_t done) {
  const double now = seconds();
  const bool is_end = done == total_ && terminal_;
  if (now < last_ + (terminal_ ? kDrawEvery : kPrintEvery) && !is_end) return;
  last_ = now;
  if (!terminal_) {
    std::cerr << line(done) << std::endl;
    return;
  }
  drawn_ = true;
  const auto full = static_cast<std::size_t>(total_ > 0 ? done * static_cast<std::int64_t>(kBar) / total_ : 0);
  // \x1b[K clears what is left of a longer line.
  std::cerr << "\r[" << std::string(full, '#') << std::string(kBar - full, '.') << "] " << line(done) << "\x1b[K"
            << std::flush;
}

std::string Progress::line(std::int64_t done) const {
  const double rate = static_cast<double>(done - begun_at_) / std::max(seconds(), 1e-3);
  std::string out = concat(with_thousands(done), " of ", with_thousands(total_), " ", what_, ", ",
                           with_thousands(static_cast<long long>(rate)), "/s");
  if (rate > 0 && done < total_) out += ", " + format_duration(static_cast<double>(total_ - done) / rate) + " left";
  return out;
}

}  // namespace tessera::tools
