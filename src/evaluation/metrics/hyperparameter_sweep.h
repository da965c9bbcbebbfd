#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::metrics {

struct Sweep {
  std::int64_t best_index = 0;
  std::vector<std::int64_t> visited;  // all visited points in order; a point may occur several times
};

/// Searches a grid of `count` points as CLIP does (Radford et al. 2021, A.3). The first round evaluates the points `initial`. Every further
/// round evaluates [best - span, best, best + span] around the previous round's best point (clamped to the grid); then `span` is halved.
/// The round with the span 1 is the last one. The best point of a round is the one with the greatest accuracy; at ties, the first in the
/// list. `accuracy` is called once per point; repetitions use the stored value.
Sweep hyperparameter_sweep(std::int64_t count, const std::vector<std::int64_t>& initial,
                           const std::function<double(std::int64_t)>& accuracy, std::int64_t span = 8);

}  // namespace tessera::metrics
