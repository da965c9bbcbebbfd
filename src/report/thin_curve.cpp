#include "src/report/thin_curve.h"

#include <algorithm>
#include <cmath>

namespace tessera::report {

void ThinCurve::add(double step, double value) {
  if (!std::isfinite(value)) return;
  last_ = value;
  if (stretches_.empty() || stretches_.back().count == per_stretch_) {
    if (stretches_.size() == most_) join_pairs();
    stretches_.push_back({step, value, value, value, 1});
    return;
  }
  Stretch& stretch = stretches_.back();
  stretch.steps += step;
  stretch.values += value;
  stretch.low = std::min(stretch.low, value);
  stretch.high = std::max(stretch.high, value);
  ++stretch.count;
}

void ThinCurve::join_pairs() {
  std::vector<Stretch> joined;
  for (std::size_t i = 0; i < stretches_.size(); i += 2) {
    Stretch stretch = stretches_[i];
    if (i + 1 < stretches_.size()) {
      const Stretch& next = stretches_[i + 1];
      stretch = {stretch.steps + next.steps, stretch.values + next.values, std::min(stretch.low, next.low),
                 std::max(stretch.high, next.high), stretch.count + next.count};
    }
    joined.push_back(stretch);
  }
  stretches_ = std::move(joined);
  per_stretch_ *= 2;
}

Curve ThinCurve::curve() const {
  Curve curve;
  for (const Stretch& stretch : stretches_) {
    const auto count = static_cast<double>(stretch.count);
    curve.points.emplace_back(stretch.steps / count, stretch.values / count);
    if (per_stretch_ > 1) curve.ranges.emplace_back(stretch.low, stretch.high);
  }
  return curve;
}

}  // namespace tessera::report
