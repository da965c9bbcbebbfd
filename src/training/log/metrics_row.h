#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/training/log/slowest_rank.h"

namespace tessera {

/// The progress of a run at the time of a row of the log.
struct RowPlace {
  std::int64_t step = 0;  // number of updates made
  std::string time;       // the row's time, from utc_time()
  double epoch = 0;       // passes over the data, including the finished part of the current one
  std::int64_t samples = 0;  // samples seen by all ranks
};

/// One row of metrics.jsonl.
struct MetricsRow : RowPlace {
  double learning_rate = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> terms;
  std::vector<std::pair<std::string, double>> statistics;  // Losses::statistics, and the shares computed from Losses::used
  std::vector<std::pair<std::string, double>> cut;         // shares from CutWatch::take_shares(); only in the first row after an epoch
  double grad_norm = 0;                                    // gradient norm before clipping
  std::vector<std::pair<std::string, double>> grad_norms;  // gradient norms of image tower, text tower and objective
  std::optional<double> logit_scale;                       // the parameter logit_scale, which is the log of the scale
  std::optional<double> logit_bias;                        // the parameter logit_bias
  double samples_per_second = 0;                           // speed since the previous row
  double seconds = 0;                                      // training time so far, over all sessions
  double wait_share = 0;         // time that steps waited for data, as a share of the time since the previous row
  std::optional<SlowestRank> slowest;    // with several ranks: which of them the others wait for, since the previous row
  double rank_wait_share = 0;            // slowest->seconds as a share of the time since the previous row
  std::optional<double> tflops;  // the model's TFLOP/s per device, without recomputation
  std::optional<double> mfu;     // tflops as a share of the device's peak
  std::int64_t resident = 0, resident_peak = 0;  // resident memory of rank 0's process, now and at its peak, in bytes
  std::optional<std::int64_t> device_peak;       // peak bytes of tensors on rank 0's GPU
  std::vector<std::string> warnings;             // warnings logged since the previous row
};

/// Returns the current time as "2026-11-23T12:34:56Z".
std::string utc_time();

/// Returns the row as JSON, from which all files of the log are written. Non-finite numbers become null.
nlohmann::ordered_json to_json(const MetricsRow& record);

/// Returns an evaluation's metrics, {"task.metric", value}, as JSON with the key `evaluation`.
nlohmann::ordered_json to_json(const RowPlace& place, const std::vector<std::pair<std::string, double>>& metrics);

/// Returns the numbers of a row in JSON for TensorBoard, as {tag, value}. Memory is in GiB.
std::vector<std::pair<std::string, double>> scalars_of(const nlohmann::ordered_json& row);

/// Returns the status line, such as "loss 1.2345  clip 1.2  1042 samples/s  1.3 TFLOP/s (31% MFU)  waits for data 34%". With
/// several ranks that wait notably for each other, it continues with "ranks wait 12%, 83% of it for rank 3 on node7".
std::string status_text(const MetricsRow& record);

/// Formats a rate as "1.3 TFLOP/s" or "310 GFLOP/s".
std::string format_flop_rate(double tflops);

}  // namespace tessera
