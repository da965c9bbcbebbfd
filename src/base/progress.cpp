#include "src/base/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

#include "src/base/clock.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr double kBetweenMoves = 0.1, kBetweenLines = 30;  // seconds
constexpr const char* kClearLine = "\r\033[K";

void write_to_terminal(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string progress_line(const std::string& name, const std::string& unit, std::int64_t done, std::int64_t total,
                          std::int64_t begun_at, double seconds) {
  const double rate = static_cast<double>(done - begun_at) / std::max(seconds, 1e-3);
  return concat(name, "  ", with_thousands(done), "/", with_thousands(total), " ", unit, "  ", with_thousands(std::llround(rate)),
                " ", unit, "/s  ETA ", format_duration(static_cast<double>(total - done) / std::max(rate, 1e-3)));
}

Progress::Output Progress::standard_error() {
  if (::isatty(STDERR_FILENO) != 0) return {true, write_to_terminal, steady_seconds};
  return {false, [](const std::string& text) { log::info(text); }, steady_seconds};
}

Progress::Progress(std::string name, std::string unit, Output output)
    : name_(std::move(name)), unit_(std::move(unit)), output_(std::move(output)), start_(output_.seconds()), shown_(start_) {}

Progress::~Progress() {
  if (moving_) output_.write(kClearLine);
}

void Progress::show(std::int64_t done, std::int64_t total, std::int64_t begun_at) {
  const double now = output_.seconds();
  if (now - shown_ < (output_.terminal ? kBetweenMoves : kBetweenLines)) return;
  shown_ = now;
  const std::string line = progress_line(name_, unit_, done, total, begun_at, now - start_);
  moving_ = output_.terminal;
  output_.write(output_.terminal ? kClearLine + line : line);
}

}  // namespace tessera
