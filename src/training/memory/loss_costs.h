#pragma once

#include <optional>

#include <tessera/measure/memory_trace.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// What the objective needs beyond the features it is given, forward and backward, the features' gradients included;
/// for one rank of a group.
class LossCosts {
 public:
  /// features: of some samples. group: imagined where there are several ranks. most_samples: measure with at most so
  /// many; 0: as many as take about a second and a quarter of the free memory.
  LossCosts(TrainingRun& run, const config::ModuleSettings& settings, const Features& features, const ProcessGroup& group,
            std::int64_t most_samples);

  /// At this batch size of a rank: bytes at the highest, floating-point operations, and whether it was measured.
  struct Cost {
    double peak = 0, forward_flops = 0, flops = 0;
    bool measured = false;
  };
  Cost at(std::int64_t batch);

 private:
  struct Measured {
    double peak = 0, seconds = 0;
  };
  Measured measure(Objective& objective, std::int64_t samples, CostCurve* curve);
  /// A number of samples below the batch up to which measuring is cheap; the batch itself if that is.
  std::int64_t measure_upwards(std::int64_t batch);
  /// The peak where `chunk` is larger than what can be measured: from smaller chunks of fewer samples.
  double peak_of_smaller_chunks(std::int64_t batch, std::int64_t most, std::int64_t chunk);
  std::shared_ptr<Objective> with_chunk(double factor) const;

  TrainingRun& run_;
  config::ModuleSettings settings_;
  Features features_;
  ProcessGroup group_;
  std::int64_t most_samples_;
  CostCurve curve_{2}, forward_{2};  // the latter of the forward pass's operations
};

/// The greatest `chunk` among an objective's settings; none when nothing is cut.
std::optional<std::int64_t> greatest_chunk(const config::Node& settings);

}  // namespace tessera
