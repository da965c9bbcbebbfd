#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/report/report.h>

namespace tessera::report {

/// A curve of bounded size. Neighboring values are merged into at most `most` stretches; each stretch stores the mean, the least and the
/// greatest of its values.
class ThinCurve {
 public:
  explicit ThinCurve(std::size_t most = 1000) : most_(most) {}

  /// Steps must not decrease. Values that are not finite are left out.
  void add(double step, double value);
  bool empty() const { return stretches_.empty(); }
  /// The value that was added last.
  const double& last() const { return last_; }
  /// Returns a curve with one point per stretch, at the mean of its steps and of its values. The curve has ranges only if stretches have
  /// more than one value.
  Curve curve(const std::string& name) const;

 private:
  struct Stretch {
    double steps = 0, values = 0;  // sums of the steps and of the values in a stretch
    double low = 0, high = 0;
    std::int64_t count = 0;
  };
  void join_pairs();

  std::size_t most_;
  std::int64_t per_stretch_ = 1;
  std::vector<Stretch> stretches_;
  double last_ = 0;
};

}  // namespace tessera::report
