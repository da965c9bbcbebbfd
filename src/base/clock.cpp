#include "src/base/clock.h"

#include <ctime>
#include <iomanip>
#include <sstream>

namespace tessera {

std::string utc_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::ostringstream out;
  out << std::put_time(&parts, format);
  return out.str();
}

double steady_seconds() {
  return seconds_since({});
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tessera
