#include "src/data/loading/read_sample.h"

#include <chrono>
#include <thread>

#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {

Sample read_sample(const Source& source, std::int64_t index, const LoaderSettings& settings, const Pause& pause) {
  double seconds = settings.retry_seconds;
  for (std::int64_t attempt = 1;; ++attempt, seconds *= 2) {
    std::string what;
    try {
      return source.get(index);
    } catch (const UserError& error) {
      what = error.what();
    }
    if (attempt > settings.retries) {
      what += concat(" (", source.name_of(index), "; tried ", attempt, attempt == 1 ? " time)" : " times)");
      if (settings.on_failure == "skip") throw SampleError("io_error", what);
      throw UserError(what);
    }
    pause(seconds, what);
  }
}

Sample SampleReader::read(std::int64_t ticket, std::int64_t index) const {
  return stream_ ? stream_->take(ticket, {0, index}) : read_sample(*source_, index, {}, pause_and_tell);
}

void pause_and_tell(double seconds, const std::string& what) {
  log::warning("data: ", what, "; tried again in ", seconds, " s");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace tessera
