#include <tessera/base/clock.h>

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

}  // namespace tessera
