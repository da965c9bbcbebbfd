#include <algorithm>
#include <map>

#include <c10/util/Exception.h>

#include "src/evaluation/metrics/hyperparameter_sweep.h"

namespace tessera::metrics {

Sweep hyperparameter_sweep(std::int64_t count, const std::vector<std::int64_t>& initial,
                           const std::function<double(std::int64_t)>& accuracy, std::int64_t span) {
  TORCH_CHECK(!initial.empty(), "hyperparameter_sweep: initial is empty");
  for (const std::int64_t index : initial)
    TORCH_CHECK(index >= 0 && index < count, "hyperparameter_sweep: initial must lie in 0..", count - 1, ", got ",
                index);
  Sweep out;
  std::map<std::int64_t, double> known;
  const auto best_of = [&](const std::vector<std::int64_t>& points) {
    std::int64_t best = points.front();
    for (const std::int64_t point : points) {
      out.visited.push_back(point);
      if (!known.contains(point)) known[point] = accuracy(point);
      if (known[point] > known[best]) best = point;
    }
    return best;
  };
  out.best_index = best_of(initial);
  for (; span >= 1; span /= 2) {
    const std::int64_t best = out.best_index;
    out.best_index = best_of({std::max<std::int64_t>(best - span, 0), best, std::min(best + span, count - 1)});
  }
  return out;
}

}  // namespace tessera::metrics
