#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// Where a run stands at a row.
struct RowPlace {
  std::int64_t step = 0;  // updates done
  std::string time;       // utc_time() of the row
  double epoch = 0;       // passes over the data, with what is done of this one
  std::int64_t samples = 0;  // seen by all ranks
};

/// One row of metrics.jsonl.
struct MetricsRow : RowPlace {
  double learning_rate = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> terms;
  std::vector<std::pair<std::string, double>> statistics;  // Losses::statistics, and the shares that Losses::used gives
  std::vector<std::pair<std::string, double>> cut;         // of the epoch that is over, the shares that CutWatch tells
  double grad_norm = 0;                                    // before clipping
  std::vector<std::pair<std::string, double>> grad_norms;  // of the image tower, the text tower, the objective
  std::optional<double> logit_scale;                       // the parameter itself (log of the scale)
  double samples_per_second = 0;                           // since the row before
  double seconds = 0;                                      // trained so far, over all sessions
  double wait_share = 0;         // part of the time since the row before that the step stood waiting for data
  std::optional<double> tflops;  // the model's 1e12 FLOPs per second and device, recomputation left out
  std::optional<double> mfu;     // the same as a share of the device's peak
  std::int64_t resident = 0, resident_peak = 0;  // bytes of rank 0's process
  std::optional<std::int64_t> device_peak;       // bytes of tensors on its GPU at their highest
  std::vector<std::string> warnings;             // said since the row before
};

/// Now, as "2026-11-23T12:34:56Z".
std::string utc_time();

/// Whether loss, terms and gradient norms are.
bool finite(const MetricsRow& row);

/// The row as one line of JSON. What is not finite is null there.
std::string to_line(const MetricsRow& record);

/// Numbers of an evaluation, {"task.metric", value}, as one line of JSON: under `evaluation`.
std::string to_line(const RowPlace& place, const std::vector<std::pair<std::string, double>>& metrics);

/// The row's numbers as {tag, value} for TensorBoard; memory in GiB.
std::vector<std::pair<std::string, double>> scalars_of(const MetricsRow& record);

/// For a line of status: "loss 1.2345  clip 1.2  1042 samples/s  1.3 TFLOP/s (31% MFU)  waits for data 34%".
std::string status_text(const MetricsRow& record);

/// "1.3 TFLOP/s", "310 GFLOP/s".
std::string format_flop_rate(double tflops);

}  // namespace tessera
