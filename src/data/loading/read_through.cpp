#include <algorithm>
#include <chrono>

#include "src/data/loading/read_through.h"
#include "src/measure/machine.h"

namespace tessera {

ReadReport read_through(Loader& loader, std::int64_t epochs, const std::function<void(std::int64_t)>& progress) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto resident = [] { return memory_use(at::kCPU).resident; };
  const std::int64_t batches = loader.batches_per_epoch() * epochs;
  ReadReport out;
  // Reads one batch past the last epoch, because only then have all samples of that epoch been read.
  for (std::int64_t done = 0;;) {
    const Batch batch = loader.next();
    if (loader.epoch() >= epochs) break;
    out.samples += batch.size();
    progress(std::min(++done, batches));
    for (int tenth = static_cast<int>(std::ssize(out.resident_bytes)) + 1; tenth <= 10 && done >= tenth * batches / 10;
         ++tenth)
      out.resident_bytes.emplace_back(10 * tenth, resident());
  }
  out.resident_at_end = resident();
  out.statistics = loader.statistics();
  out.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return out;
}

}  // namespace tessera
